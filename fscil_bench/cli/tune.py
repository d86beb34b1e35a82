"""`fscil-bench tune`: choose a method's parameters on the pseudo-incremental split."""

from __future__ import annotations

from typing import Annotated

import typer

from fscil_bench.cli.options import (
    Cache,
    DataRoot,
    Debug,
    Device,
    Plugins,
    Precision,
    Results,
    UnofficialData,
    Weights,
    explained,
    open_workbench,
    parse_seeds,
    parse_settings,
    say,
    show,
)
from fscil_bench.errors import UsageError, nearest


@explained
def tune(
    method: Annotated[str, typer.Option("--method", "-m", help="The method to tune.")],
    protocol: Annotated[
        str, typer.Option("--protocol", "-p", help="The protocol by name, or a TOML file.")
    ],
    representation: Annotated[
        str, typer.Option(help="What is trained on the base session.")
    ] = "cosine",
    grid: Annotated[
        list[str],
        typer.Option(
            help="Values to try, NAME=A,B,C; repeated, every combination is tried. (default: "
            "what the method proposes)"
        ),
    ] = [],  # noqa: B006 - typer reads the default, nothing changes it
    settings: Annotated[
        list[str], typer.Option("--set", help="A parameter that stays, name=value. Repeatable.")
    ] = [],  # noqa: B006
    seeds: Annotated[
        str, typer.Option("--seeds", "--seed", help="Seeds of shots: 0, 0-9 or 0,2,5-7.")
    ] = "0-4",
    criterion: Annotated[
        str,
        typer.Option(help="Choose by mean `last`, `average` or `harmonic` accuracy."),
    ] = "last",
    epochs: Annotated[
        int | None, typer.Option(help="Base-training epochs. (default: the recipe's)")
    ] = None,
    data_root: DataRoot = None,
    device: Device = "auto",
    precision: Precision = "auto",
    weights: Weights = None,
    unofficial_data: UnofficialData = False,
    results: Results = None,
    cache: Cache = None,
    plugin: Plugins = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Choose a method's parameters without a look at new classes or test images.

    The protocol's last base classes play the new ones, with a network trained without them, and
    some of the base classes' training images play the test images. `run --tuned` uses the choice.
    """
    del debug
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.request import RunRequest
    from fscil_bench.running.tuning import (
        CRITERIA,
        Tuning,
        checked_grid,
        choose,
        close_call,
        default_grid,
        store_choice,
        table,
    )

    if criterion not in CRITERIA:
        raise UsageError(f"unknown criterion {criterion!r}; {nearest(criterion, list(CRITERIA))}")
    registry = load_registry(tuple(plugin))
    values = {n: t.split(",") for n, t in parse_settings(grid, "--grid").items()}
    request = RunRequest(
        method=method,
        protocol=protocol,
        representation=representation,
        params=parse_settings(settings),
        overrides={} if epochs is None else {"epochs": epochs},
    )
    tried = checked_grid(registry, request, values or default_grid(registry, method))
    tuning = Tuning(request, tried, parse_seeds(seeds), criterion)
    bench = open_workbench(
        registry, results, cache, data_root, device, precision, weights, unofficial_data
    )
    plans = [bench.plan(each) for each in tuning.requests()]
    runs = []
    with bench.progress.task("runs", len(plans)) as task:
        for number, plan in enumerate(plans):
            runs.append(bench.run(plan))
            task.update(number + 1, f"last {100 * runs[-1].accuracies[-1]:.2f} %")
    choice = choose(tuning, runs, registry)
    path = store_choice(bench.store, registry.protocol(protocol)[0].name, choice)
    show(f"{method} on {choice.protocol}, means over {len(choice.seeds)} seeds, in %\n")
    show(table(choice) + "\n")
    chosen = " ".join(f"--set {name}={value}" for name, value in choice.params.items())
    show(f"chosen by {criterion} accuracy: {chosen}")
    if lead := close_call(choice):
        show(lead)
    say(f"wrote {path}")
    say(f"use it: fscil-bench run --method {method} --protocol {protocol} --tuned")
