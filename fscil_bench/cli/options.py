"""What the commands share: options, messages on stderr, errors as one message and an exit code."""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fscil_bench.errors import FscilError, UsageError, nearest

if TYPE_CHECKING:
    from fscil_bench.plugins.registry import Registry
    from fscil_bench.running.workbench import Workbench

Results = Annotated[
    Path | None,
    typer.Option(help="Folder of results. (default: $FSCIL_BENCH_RESULTS or ./results)"),
]
Cache = Annotated[
    Path | None,
    typer.Option(help="Folder of caches. (default: $FSCIL_BENCH_CACHE or the system's)"),
]
Plugins = Annotated[
    list[Path], typer.Option("--plugin", help="A Python file that brings plug-ins. Repeatable.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option(
        help="Folder or archive where data sets are looked for first, before "
        "$FSCIL_BENCH_DATA and ./data."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")]
Precision = Annotated[
    str, typer.Option(help="Of base training: auto (bf16 where computed in hardware), fp32, bf16.")
]
Weights = Annotated[
    str | None,
    typer.Option(help="A file of pre-trained weights, or none. (default: the protocol's)"),
]
ViewsOption = Annotated[
    str,
    typer.Option(
        "--views",
        help="How frozen features are read: plain, or flip (averaged over image and mirror image).",
    ),
]
UnofficialData = Annotated[
    bool, typer.Option("--unofficial-data", help="Use a copy that is not the published one.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
RESULTS_HINT = "for these results, add to each command of missing runs: --results {}"
MOST_SEEDS = 10_000
"""Seeds that one range may name."""

_Command = TypeVar("_Command", bound=Callable[..., None])


def explained(command: _Command) -> _Command:
    """Turn the errors of a command into one message and an exit code."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            with _plain_warnings():
                command(*args, **kwargs)
        except FscilError as error:
            complain(error, kwargs["debug"])
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            say(
                "interrupted: finished runs and epochs are kept, and the same command goes on "
                "from there"
            )
            raise typer.Exit(130) from None
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except OSError as error:
            complain(_of_system(error), kwargs["debug"])
            raise typer.Exit(1) from None
        except (Exception, SystemExit) as error:
            complain(error, kwargs["debug"])
            if not kwargs["debug"]:
                say("this is a bug, or a plug-in's; --debug shows where it happened")
            raise typer.Exit(1) from None

    return wrapped  # type: ignore[return-value]


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Write warnings as messages, without the line of code that gave them."""

    def shown(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {message}")

    with warnings.catch_warnings():
        warnings.showwarning = shown
        yield


def open_workbench(
    registry: Registry,
    results: Path | None,
    cache: Path | None,
    data_root: Path | None,
    device: str,
    precision: str,
    weights: str | None,
    unofficial_data: bool,
    skip_broken: bool = False,
) -> Workbench:
    """Return a workbench for what the shared options say.

    Raises:
        UsageError: the device or the precision cannot be had.
    """
    import torch

    from fscil_bench.progress import for_terminal
    from fscil_bench.running.workbench import Options, Workbench
    from fscil_bench.store.runs import Store, data_roots
    from fscil_bench.training.machine import too_many_threads

    slow = too_many_threads(torch.get_num_threads())
    if slow:
        say(f"warning: {slow}")
    options = Options(
        data_roots=data_roots(data_root),
        device=device,
        precision=precision,  # type: ignore[arg-type]  # resolve_precision refuses the rest
        weights=weights,
        unofficial_data=unofficial_data,
        skip_broken=skip_broken,
    )
    return Workbench(Store(results, cache), registry, for_terminal(), options)


def words(values: Iterable[str]) -> list[str]:
    """Return comma-separated or repeated words, each once, in order."""
    found = [word.strip() for value in values for word in value.split(",")]
    return list(dict.fromkeys(word for word in found if word))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of `0`, `0-9` or `0,2,5-7`, each once, in the order given.

    Raises:
        UsageError: not such a list.
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"seeds {text!r}: {part!r} is neither a number nor a range like 0-9")
        low, high = int(first), int(last or first)
        if high < low:
            raise UsageError(f"seeds {text!r}: the range {part!r} runs backwards")
        if high - low >= MOST_SEEDS or high >= 2**63:
            raise UsageError(f"seeds {text!r}: {part!r} is more than {MOST_SEEDS} or too large")
        seeds += range(low, high + 1)
    return tuple(dict.fromkeys(seeds))


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


def fitting_methods(
    asked: Iterable[str], names: Iterable[str], representation: str, registry: Registry
) -> list[str]:
    """Return the methods that can stand on a representation, and say which of a group cannot.

    A method asked for by its own name stays, so that it is refused with the reason.
    """
    brought = set(registry.get("representation", representation).value.extras)
    fitting = []
    for name in names:
        lacking = set(registry.get("method", name).value.needs.extras) - brought
        if not lacking or name in asked:
            fitting.append(name)
            continue
        say(
            f"{name} is left out on representation {representation}: its tensors "
            f"{', '.join(map(repr, sorted(lacking)))} come with {_bringing(lacking, registry)}"
        )
    return fitting


def _bringing(extras: set[str], registry: Registry) -> str:
    names = [
        name
        for name in registry.names("representation")
        if extras <= set(registry.get("representation", name).value.extras)
    ]
    return f"representation {' or '.join(names)}" if names else "no registered representation"


def assign_settings(
    settings: Iterable[str], methods: list[str], registry: Registry
) -> dict[str, dict[str, str]]:
    """Give each method its settings: `name=value` to all of them, `METHOD.name=value` to one.

    Raises:
        UsageError: a setting is malformed, or names a method or parameter that is not there.
    """
    assigned: dict[str, dict[str, str]] = {method: {} for method in methods}
    for name, value in parse_settings(settings).items():
        owner, dot, rest = name.rpartition(".")
        if dot and owner not in assigned:
            raise UsageError(f"--set {name}: {owner!r} is not run; {nearest(owner, methods)}")
        for method in [owner] if dot else methods:
            assigned[method][rest] = value
    if len(methods) > 1:
        _check_shared(settings, methods, registry)
    return assigned


def _check_shared(settings: Iterable[str], methods: list[str], registry: Registry) -> None:
    from dataclasses import fields

    for name in parse_settings(settings):
        for method in methods if "." not in name else []:
            schema = registry.get("method", method).value.Params
            if name not in {field.name for field in fields(schema)}:
                raise UsageError(
                    f"--set {name}: method {method!r} has no such parameter; to set it for one "
                    f"method alone write --set METHOD.{name}=VALUE"
                )


def _of_system(error: OSError) -> FscilError:
    return FscilError(f"{error.filename or 'input or output'}: {error.strerror or error}")


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


@contextmanager
def naming_results(results: Path | None) -> Iterator[None]:
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
