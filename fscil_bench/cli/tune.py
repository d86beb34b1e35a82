"""`fscil-bench tune`: choose a method's parameters on the pseudo-incremental split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from fscil_bench.cli.options import (
    NO_TEXTS,
    Overrides,
    Seeds,
    command,
    open_workbench,
    parse_settings,
    say,
    show,
)
from fscil_bench.defaults import REPRESENTATION
from fscil_bench.options import Options
from fscil_bench.params import words
from fscil_bench.request import parse_seeds

if TYPE_CHECKING:
    from fscil_bench.running.tuning import Criterion


@command()
def tune(
    method: Annotated[str, typer.Option("--method", "-m", help="The method to tune.")],
    protocol: Annotated[
        str, typer.Option("--protocol", "-p", help="The protocol by name, or a TOML file.")
    ],
    options: Options,
    overrides: Overrides,
    representation: Annotated[
        str, typer.Option(help="What is trained on the base session.")
    ] = REPRESENTATION,
    grid: Annotated[
        list[str],
        typer.Option(
            help="Values to try, NAME=A,B,C; repeated, every combination is tried. (default: "
            "what the method proposes)"
        ),
    ] = NO_TEXTS,
    settings: Annotated[
        list[str], typer.Option("--set", help="A parameter that stays, name=value. Repeatable.")
    ] = NO_TEXTS,
    seeds: Seeds = "0-4",
    criterion: Annotated[
        str,
        typer.Option(help="Choose by mean `last`, `average` or `harmonic` accuracy."),
    ] = "last",
) -> None:
    """Choose a method's parameters without a look at new classes or test images.

    The protocol's last base classes play the new ones, with a network trained without them, and
    some of the base classes' training images play the test images. `run --tuned` uses the choice.
    """
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.request import RunRequest
    from fscil_bench.running.commands import override_words
    from fscil_bench.running.tuning import (
        Tuning,
        checked_grid,
        close_call,
        default_grid,
        table,
        tuned_choice,
    )

    registry = load_registry(options.plugin_files)
    values = {n: words(t) for n, t in parse_settings(grid, "--grid").items()}
    request = RunRequest(
        method=method,
        protocol=protocol,
        representation=representation,
        params=parse_settings(settings),
        overrides=overrides.given(),
    )
    tried = checked_grid(registry, request, values or default_grid(registry, method))
    tuning = Tuning(request, tried, parse_seeds(seeds), cast("Criterion", criterion))
    bench = open_workbench(options)
    choice, path = tuned_choice(bench, tuning)
    show(f"{method} on {choice.protocol}, means over {len(choice.seeds)} seeds, in %\n")
    show(table(choice) + "\n")
    chosen = " ".join(f"--set {name}={value}" for name, value in choice.params.items())
    show(f"chosen by {criterion} accuracy: {chosen}")
    if lead := close_call(choice):
        show(lead)
    say(f"wrote {path}")
    told = ["run", "--method", method, "--protocol", protocol, "--tuned"]
    if representation != REPRESENTATION:
        told += ["--representation", representation]
    say(f"use it: {options.command(*told, *override_words(request.overrides))}")
