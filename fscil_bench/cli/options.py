"""What the commands share: options from dataclasses, messages, errors as one line and a code."""

from __future__ import annotations

import codecs
import functools
import inspect
import io
import re
import shlex
import signal
import sys
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import FscilError, UsageError, nearest, shown
from fscil_bench.options import PLACES, Options, given_path, option
from fscil_bench.progress import printable

if TYPE_CHECKING:
    from fscil_bench.request import RunRequest
    from fscil_bench.running.workbench import Workbench

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
TYPED = "fscil_bench.typed"
"""Under which a command's context has the words that were typed."""
NO_TEXTS: list[str] = []
"""The default of options that can be repeated; typer reads it, nothing changes it."""

Command = Callable[..., None]


METHODS = "Methods, comma-separated or repeated; all-frozen, all-images or all stand for many."
Methods = Annotated[list[str], typer.Option("--method", "-m", help=METHODS)]
Seeds = Annotated[str, typer.Option("--seeds", "--seed", help="Seeds: 0, 0-9 or 0,2,5-7.")]
BROUGHT_PARAMETER = "A parameter of the representation."
VIEWS = "How frozen features are read: plain, or flip (averaged over image and mirror image)."
Force = Annotated[
    bool,
    typer.Option(
        "--force", help="Make again what is stored; after a stop the same command goes on."
    ),
]


@dataclass(frozen=True)
class Overrides:
    """Fields of the protocol or its recipe that are changed; None leaves the protocol's own."""

    epochs: int | None = option(
        None, told="Base-training epochs; 0 takes the network of --weights. (default: the recipe's)"
    )
    way: str | None = option(None, told="New classes a session: 5, or 3,2,1 for uneven ones.")
    shot: int | None = option(None, told="Images of each new class.")
    base_classes: int | None = option(None, told="Classes of the base session.")
    sessions: int | None = option(None, told="Sessions after the base session.")
    class_order: str | None = option(
        None, told="dataset (the data set's own) or seed:N (a permutation)."
    )
    backbone: str | None = option(
        None, told="The network, by name: resnet18, timm:NAME ... See `list backbones`."
    )
    recipe: Sequence[str] = option(
        (), told="A value of the recipe, name=value: batch_size=32, milestones=60,70. Repeatable."
    )

    def given(self) -> dict[str, Any]:
        """Return what is changed.

        Raises:
            UsageError: a value is not of its field's type, or a name is unknown or given twice.
        """
        found = {name: value for name, value in vars(self).items() if value is not None}
        recipe = parse_recipe(found.pop("recipe"))
        if "way" in found:
            found["way"] = _parse_way(found["way"])
        if "epochs" in found and "epochs" in recipe:
            raise UsageError("--epochs and --recipe epochs=...: give one of them")
        return found | recipe


@dataclass(frozen=True)
class Asked:
    """Runs of every method on every protocol and representation, over seeds."""

    method: Sequence[str] = option(MISSING, "--method", "-m", told=METHODS)
    protocol: Sequence[str] = option(
        MISSING, "--protocol", "-p", told="Protocols by name, or TOML files."
    )
    representation: Sequence[str] = option(
        (REPRESENTATION,), told="What is trained on the base session."
    )
    seeds: str = option("0", "--seeds", "--seed", told="Seeds: 0, 0-9 or 0,2,5-7.")
    representation_seed: str = option("0", told="Seeds of base training, like --seeds.")
    settings: Sequence[str] = option(
        (), "--set", told="A parameter, name=value or METHOD.name=value. Repeatable."
    )
    representation_settings: Sequence[str] = option(
        (), "--set-representation", told=BROUGHT_PARAMETER
    )
    views: str = option("plain", told=VIEWS)
    tuned: bool = option(False, "--tuned", told="Take the parameters that `tune` chose.")
    split: str | None = option(
        None,
        told="canonical (published shots), seeded, or outlier:Q (shots from the fraction Q of a "
        "class farthest from its mean). (default: the protocol's)",
    )
    index_list: Path | str | None = option(
        None, told="Folder of session_2.txt ..., lists of shots in the published format."
    )
    pseudo: bool = option(
        False,
        "--pseudo-incremental",
        told="Let base classes play the new ones and training images the test images.",
    )

    def requests(self, bench: Workbench, overrides: Overrides) -> list[RunRequest]:
        """Return what is asked for.

        Raises:
            UsageError: an unknown name, parameter or value, or nothing is asked for.
        """
        from fscil_bench.running.series import requested

        return requested(
            bench,
            self.method,
            self.protocol,
            representation=self.representation,
            seed=self.seeds,
            representation_seed=self.representation_seed,
            params=parse_settings(self.settings),
            representation_params=parse_settings(self.representation_settings),
            overrides=overrides.given(),
            tuned=self.tuned,
            views=self.views,
            split=self.split,
            index_list=given_path(self.index_list),
            pseudo=self.pseudo,
        )


def parse_recipe(settings: Iterable[str]) -> dict[str, Any]:
    """Return the values of `name=value` settings, typed by the recipe's fields.

    Raises:
        UsageError: as `Overrides.given` does.
    """
    from pydantic import TypeAdapter, ValidationError

    from fscil_bench.protocol import Recipe

    types, found = get_type_hints(Recipe, include_extras=True), {}
    for name, text in parse_settings(settings, "--recipe").items():
        if name not in Recipe.model_fields:
            raise UsageError(
                f"--recipe {name}: no value of a recipe; {nearest(name, Recipe.model_fields)}"
            )
        several = get_origin(types[name]) is tuple
        try:
            value = _parts(text) if several else text
            found[name] = TypeAdapter(types[name]).validate_python(value)
        except ValidationError as error:
            problem = error.errors()[0]
            raise UsageError(f"--recipe {name} = {shown(text)}: {problem['msg']}") from error
    return found


def _parts(text: str) -> list[str]:
    plain = re.sub(r"[\[\]()'\"]", "", text)  # as a list of TOML or Python would be written
    parts = [part.strip() for part in plain.split(",")]
    return parts if parts[-1] else parts[:-1]  # a tuple of one ends in a comma


def _parse_way(text: str) -> int | tuple[int, ...]:
    try:
        ways = tuple(map(int, _parts(text)))
    except ValueError:
        ways = ()
    if not ways:
        raise UsageError(f"--way {shown(text)}: write a number, or one for each session, 3,2,1")
    return ways if "," in text else ways[0]


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
            typed = given.pop("context").meta[TYPED]
            values = {name: given.pop(name) for name in flat}
            with _explained(debug, typed):
                _refuse_nul({**given, **values})
                for name, group in groups.items():
                    mine = [each.name for each in fields(group) if each.name in values]
                    given[name] = group(**{field: values[field] for field in mine})
                function(**given)

        parameters = [
            value.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, value in own.items()
            if name not in groups
        ]
        for group in groups.values():
            offered = [
                _parameter(each, get_type_hints(group)[each.name])
                for each in fields(group)
                if each.name in flat
            ]
            parameters = [*offered, *parameters] if group is Asked else [*parameters, *offered]
        keyword = inspect.Parameter.KEYWORD_ONLY
        if "debug" not in own:
            parameters.append(inspect.Parameter("debug", keyword, default=False, annotation=Debug))
        parameters.append(inspect.Parameter("context", keyword, annotation=typer.Context))
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {each.name: each.annotation for each in parameters}
        return called

    return decorate


def _parameter(each: Field[Any], hint: Any) -> inspect.Parameter:
    """Return a dataclass's field as an option of the command line."""
    default = inspect.Parameter.empty if each.default is MISSING else each.default
    if get_origin(hint) is Sequence:
        hint, default = list[str], list(default) if isinstance(default, tuple) else default
    elif hint == Path | str | None:
        hint = str | None  # as a Path, an empty text would be the current folder
    annotation = Annotated[hint, typer.Option(*each.metadata["flags"], help=each.metadata["help"])]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(each.name, keyword, default=default, annotation=annotation)


def _refuse_nul(given: Mapping[str, Any]) -> None:
    """Refuse what no file system and no record can hold.

    Raises:
        UsageError: it holds a NUL character.
    """
    for name, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            if "\0" in str(each):
                raise UsageError(f"{name.replace('_', '-')} {str(each)!r}: holds a NUL character")


@contextmanager
def _explained(debug: bool, typed: Sequence[str]) -> Iterator[None]:
    """Turn errors into one message and an exit code; `typed` are the words of the command."""
    try:
        with _plain_warnings():
            yield
    except FscilError as error:
        complain(error, debug)
        if error.remedy:
            say(f"the whole command: {shlex.join(['fscil-bench', *typed, *error.remedy])}")
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt as stop:
        say(
            "interrupted: finished runs are kept, and of base training, features and long stages "
            "of methods all but the last epoch, session or minute; the same command goes on from "
            "there"
        )
        number = signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT
        raise typer.Exit(128 + number) from None
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
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


def use_free_cores(options: Options) -> None:
    """Compute with as many threads as cores are free, unless a number is given."""
    from fscil_bench.training.compute import settle_threads

    told = settle_threads(None) if options.threads is None else ""
    if told:
        say(told)


def open_workbench(options: Options) -> Workbench:
    """Return a workbench that shows its progress, on the cores that are free.

    Raises:
        UsageError: the device or the precision cannot be had, or a plug-in cannot be loaded.
    """
    from fscil_bench.progress import for_terminal
    from fscil_bench.running.workbench import Workbench

    use_free_cores(options)
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
    print(printable(text))  # noqa: T201


def say(text: str) -> None:
    """Write a line about what is going on to stderr."""
    print(printable(text), file=sys.stderr, flush=True)  # noqa: T201


def say_tables(protocols: Mapping[str, str], options: Options, report: str, *more: str) -> None:
    """Say which command draws a table of what was made; a protocol's name -> what asked for it.

    `more` are the report's own options.
    """
    only = ("results", "cache", "plugins")
    for name, asked in sorted(protocols.items()):
        word = asked if asked.endswith(".toml") else name
        say(f"table: {options.command('report', report, '--protocol', word, *more, only=only)}")


@contextmanager
def naming_places(options: Options) -> Iterator[None]:
    """Let errors that suggest a command say which options it must repeat, if any were given.

    Raises:
        FscilError: the same as was raised inside.
    """
    try:
        yield
    except FscilError as error:
        given = options.words(*PLACES)
        if not given or "fscil-bench " not in str(error):
            raise
        hint = f"for these results, add to a command: {shlex.join(given)}"
        raise type(error)(f"{error}\n{hint}") from error


LOOKALIKES = {
    **dict.fromkeys("‐‑‒–—−", "-"),
    **dict.fromkeys("‘’′", "'"),
    **dict.fromkeys("“”″", '"'),
    "×": "x",
    "±": "+/-",
    "…": "...",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "·": ".",
}
"""What is written instead where an encoding lacks a character."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as batch systems send it before they kill: it stops work as Ctrl-C does."""


def heed_termination() -> None:
    """Let SIGTERM stop work as Ctrl-C does, so that locks and temporary files are removed."""

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        signal.signal(number, signal.SIG_IGN)  # some systems send it again while work is ended
        raise Terminated

    signal.signal(signal.SIGTERM, stop)


def survive_encodings() -> None:
    """Let stdout and stderr write what their encoding lacks as something alike, or as `?`."""

    def alike(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        lacking = error.object[error.start : error.end]
        return "".join(map(_ascii, lacking)), error.end

    codecs.register_error("fscil-bench", alike)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="fscil-bench")


def _ascii(character: str) -> str:
    plain = unicodedata.normalize("NFKD", LOOKALIKES.get(character, character))
    return plain.encode("ascii", "ignore").decode() or "?"


def listed(values: Sequence[str]) -> str:
    """Return texts one below the other, as the items of a message."""
    return "\n  ".join(values)
