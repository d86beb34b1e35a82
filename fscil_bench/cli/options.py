"""What the commands share: options from dataclasses, messages, errors as one line and a code."""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.options import Options, option

if TYPE_CHECKING:
    from fscil_bench.running.workbench import Workbench

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
RESULTS_HINT = "for these results, add to each command of missing runs: --results {}"
NO_TEXTS: list[str] = []
"""The default of options that can be repeated; typer reads it, nothing changes it."""

Command = Callable[..., None]

Methods = Annotated[
    list[str],
    typer.Option(
        "--method",
        "-m",
        help="Methods, comma-separated or repeated; all-frozen, all-images or all stand for many.",
    ),
]
Protocols = Annotated[
    list[str], typer.Option("--protocol", "-p", help="Protocols by name, or TOML files.")
]
Representations = Annotated[list[str], typer.Option(help="What is trained on the base session.")]
RepresentationSeeds = Annotated[str, typer.Option(help="Seeds of base training, like --seeds.")]
Seeds = Annotated[str, typer.Option("--seeds", "--seed", help="Seeds: 0, 0-9 or 0,2,5-7.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", help="A parameter, name=value or METHOD.name=value. Repeatable."),
]
RepresentationSettings = Annotated[
    list[str], typer.Option("--set-representation", help="A parameter of the representation.")
]
ViewsOption = Annotated[
    str,
    typer.Option(
        "--views",
        help="How frozen features are read: plain, or flip (averaged over image and mirror image).",
    ),
]
Tuned = Annotated[bool, typer.Option("--tuned", help="Take the parameters that `tune` chose.")]
Force = Annotated[bool, typer.Option("--force", help="Make again what is stored.")]


@dataclass(frozen=True)
class Overrides:
    """Fields of the protocol or its recipe that are changed; None leaves the protocol's own."""

    epochs: int | None = option(
        None, told="Base-training epochs; 0 takes the network of --weights. (default: the recipe's)"
    )
    way: int | None = option(None, told="New classes a session.")
    shot: int | None = option(None, told="Images of each new class.")
    base_classes: int | None = option(None, told="Classes of the base session.")
    sessions: int | None = option(None, told="Sessions after the base session.")
    class_order: str | None = option(
        None, told="dataset (the data set's own) or seed:N (a permutation)."
    )

    def given(self) -> dict[str, Any]:
        """Return what is changed."""
        return {name: value for name, value in vars(self).items() if value is not None}


def command(
    only: Sequence[str] = (), leaving: Sequence[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command: options for the fields of its dataclasses, errors explained.

    A parameter annotated with a dataclass (`Options`, `Overrides`) stands for one option a field:
    for `only` these, or all but those that are left out, which keep their defaults.
    """

    def decorate(function: Command) -> Command:
        hints = get_type_hints(function, include_extras=True)
        own = inspect.signature(function).parameters
        groups = {name: hints[name] for name in own if is_dataclass(hints[name])}
        flat = {
            each.name: each
            for group in groups.values()
            for each in fields(group)
            if (not only or each.name in only) and each.name not in leaving
        }

        @functools.wraps(function)
        def called(**given: Any) -> None:
            debug = given["debug"] if "debug" in own else given.pop("debug")
            values = {name: given.pop(name) for name in flat}
            with _explained(debug):
                for name, group in groups.items():
                    mine = [each.name for each in fields(group) if each.name in values]
                    given[name] = group(**{field: values[field] for field in mine})
                function(**given)

        parameters = [
            value.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, value in own.items()
            if name not in groups
        ]
        parameters += [
            _parameter(each, get_type_hints(group)[each.name])
            for group in groups.values()
            for each in fields(group)
            if each.name in flat
        ]
        if "debug" not in own:
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter("debug", keyword, default=False, annotation=Debug))
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorate


def _parameter(each: Field[Any], hint: Any) -> inspect.Parameter:
    """Return a dataclass's field as an option of the command line."""
    default = None if each.default is MISSING else each.default
    if each.name == "plugins":
        hint, default = list[str], list(default or ())
    elif hint == Path | str | None:
        hint = str | None  # as a Path, an empty text would be the current folder
    annotation = Annotated[hint, typer.Option(*each.metadata["flags"], help=each.metadata["help"])]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(each.name, keyword, default=default, annotation=annotation)


@contextmanager
def _explained(debug: bool) -> Iterator[None]:
    """Turn errors into one message and an exit code."""
    try:
        with _plain_warnings():
            yield
    except FscilError as error:
        complain(error, debug)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        say(
            "interrupted: finished runs and epochs are kept, and the same command goes on from "
            "there"
        )
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except OSError as error:
        complain(
            FscilError(f"{error.filename or 'input or output'}: {error.strerror or error}"), debug
        )
        raise typer.Exit(1) from None
    except (Exception, SystemExit) as error:
        complain(error, debug)
        if not debug:
            say("this is a bug, or a plug-in's; --debug shows where it happened")
        raise typer.Exit(1) from None


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Write warnings as messages, without the line of code that gave them."""

    def shown(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = shown
        yield


def open_workbench(options: Options) -> Workbench:
    """Return a workbench that shows its progress, and settle the number of threads.

    Raises:
        UsageError: the device or the precision cannot be had, or a plug-in cannot be loaded.
    """
    from fscil_bench.progress import for_terminal
    from fscil_bench.running.workbench import Workbench
    from fscil_bench.training.compute import settle_threads

    told = settle_threads(options.threads)
    if told:
        say(told)
    return Workbench.open(options, for_terminal())


def parse_settings(settings: Iterable[str], option: str = "--set") -> dict[str, str]:
    """Return `name=value` settings as a dict; `option` is where they were given.

    Raises:
        UsageError: a setting has no `=`, or a name comes twice.
    """
    found: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {setting!r}: write name=value")
        if name.strip() in found:
            raise UsageError(f"{option} {name.strip()} is given twice")
        found[name.strip()] = value.strip()
    return found


def complain(error: BaseException, debug: bool) -> None:
    """Write an error as one message; with `debug` its traceback too."""
    if debug:
        traceback.print_exception(error)
    kind = "" if isinstance(error, FscilError) else f"{type(error).__name__}: "
    say(f"error: {kind}{error}")


def show(text: str) -> None:
    """Write a line of what was asked for to stdout."""
    print(text)  # noqa: T201


def say(text: str) -> None:
    """Write a line about what is going on to stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def say_tables(protocols: Iterable[str], report: str) -> None:
    """Say which command draws a table of what was made."""
    for name in sorted(set(protocols)):
        say(f"table: fscil-bench report {report} --protocol {name}")


@contextmanager
def naming_results(results: Path | str | None) -> Iterator[None]:
    """Let errors that suggest a command say that it must name the folder of results, if one was.

    Raises:
        FscilError: the same as was raised inside.
    """
    try:
        yield
    except FscilError as error:
        if results is None or "fscil-bench " not in str(error):
            raise
        raise type(error)(f"{error}\n{RESULTS_HINT.format(results)}") from error


def listed(values: Sequence[str]) -> str:
    """Return texts one below the other, as the items of a message."""
    return "\n  ".join(values)
