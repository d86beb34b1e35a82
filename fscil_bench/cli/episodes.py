"""`fscil-bench episodes`: ordinary few-shot classification on a protocol's new classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
    ViewsOption,
    Weights,
    assign_settings,
    complain,
    explained,
    open_workbench,
    parse_seeds,
    parse_settings,
    say,
    words,
)
from fscil_bench.errors import FscilError, UsageError

if TYPE_CHECKING:
    from fscil_bench.episodes.run import EpisodesPlan
    from fscil_bench.running.workbench import Workbench


@explained
def episodes(
    method: Annotated[
        list[str], typer.Option("--method", "-m", help="Methods, comma-separated or repeated.")
    ],
    protocol: Annotated[
        list[str], typer.Option("--protocol", "-p", help="Protocols by name, or TOML files.")
    ],
    way: Annotated[str, typer.Option(help="Classes of an episode: 5, or 5,10.")] = "5",
    shot: Annotated[str, typer.Option(help="Labelled images of each class: 1,5.")] = "1,5",
    queries: Annotated[int, typer.Option(help="Queries of each class.")] = 15,
    count: Annotated[int, typer.Option("--episodes", help="How many are drawn.")] = 600,
    seeds: Annotated[
        str, typer.Option("--seeds", "--seed", help="Seeds of the draws: 0, 0-9 or 0,2,5-7.")
    ] = "0",
    representation: Annotated[
        list[str], typer.Option(help="What is trained on the base session.")
    ] = ["cosine"],  # noqa: B006 - typer reads the default, nothing changes it
    representation_seed: Annotated[
        str, typer.Option(help="Seeds of base training, like --seeds.")
    ] = "0",
    settings: Annotated[
        list[str],
        typer.Option("--set", help="A parameter, name=value or METHOD.name=value. Repeatable."),
    ] = [],  # noqa: B006
    representation_settings: Annotated[
        list[str],
        typer.Option("--set-representation", help="A parameter of the representation."),
    ] = [],  # noqa: B006
    epochs: Annotated[
        int | None, typer.Option(help="Base-training epochs. (default: the recipe's)")
    ] = None,
    base_classes: Annotated[int | None, typer.Option(help="Classes of the base session.")] = None,
    class_order: Annotated[
        str | None, typer.Option(help="dataset (the data set's own) or seed:N (a permutation).")
    ] = None,
    views: ViewsOption = "plain",
    data_root: DataRoot = None,
    device: Device = "auto",
    precision: Precision = "auto",
    weights: Weights = None,
    unofficial_data: UnofficialData = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Take the parameters that `tune` chose.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Make again what is stored.")] = False,
    results: Results = None,
    cache: Cache = None,
    plugin: Plugins = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Measure few-shot classification: episodes of a few new classes, apart from all others.

    Every method gets the same episodes. What is stored is not made again. Shots come from the
    training half of the data, queries from the test half.
    """
    from fscil_bench.episodes.run import plan_episodes
    from fscil_bench.plugins.registry import load_registry
    from fscil_bench.request import RunRequest

    names, registry = words(method), load_registry(tuple(plugin))
    changes = assign_settings(settings, names, registry)
    bench = open_workbench(
        registry, results, cache, data_root, device, precision, weights, unofficial_data
    )
    options = {"epochs": epochs, "base_classes": base_classes, "class_order": class_order}
    requests = [
        RunRequest(
            method=name,
            protocol=place,
            representation=brought,
            params=changes[name],
            representation_params=parse_settings(representation_settings),
            seed=seed,
            representation_seed=base_seed,
            overrides={key: value for key, value in options.items() if value is not None},
            views=views,
        )
        for place in words(protocol)
        for brought in words(representation)
        for base_seed in parse_seeds(representation_seed)
        for name in names
        for seed in parse_seeds(seeds)
    ]
    if tuned:
        from fscil_bench.running.tuning import with_choices

        requests = with_choices(bench, requests)
    designs = [
        _design(way=ways, shot=shots, queries=queries, episodes=count)
        for ways in words([way])
        for shots in words([shot])
    ]
    plans = [plan_episodes(bench, request, each) for request in requests for each in designs]
    if not plans:
        raise UsageError("nothing to do: name a method, a protocol, a way and a shot")
    _run_all(bench, plans, force, debug)


def _design(**values: Any) -> Any:
    from fscil_bench.params import parse_params
    from fscil_bench.request import Design

    return parse_params("an episode", Design, values)


def _run_all(bench: Workbench, plans: list[EpisodesPlan], force: bool, debug: bool) -> None:
    """Make all of them; one method's failure does not cost the others theirs."""
    from fscil_bench.episodes.run import run_episodes

    failures = 0
    with bench.progress.task("all episodes", len(plans)) as task:
        for number, plan in enumerate(plans):
            run, design = plan.spec.run, plan.spec.design
            title = f"{run.method} on {run.protocol.name}, {design.title}, seed {run.seed}"
            task.update(number, title)
            try:
                stored = run_episodes(bench, plan, force)
                accuracy = stored.accuracy
                bench.progress.say(
                    f"{title}: {100 * accuracy.mean:.2f} ± {100 * accuracy.half_width:.2f} % over "
                    f"{accuracy.count} episodes  [{stored.folder}]"
                )
            except (Exception, SystemExit) as error:
                if len(plans) == 1:
                    raise
                failures += 1
                bench.progress.say(title)
                complain(error, debug)
            task.update(number + 1)
    for name in sorted({plan.spec.run.protocol.name for plan in plans}):
        say(f"table: fscil-bench report few-shot --protocol {name}")
    if failures:
        raise FscilError(f"{failures} of {len(plans)} failed; the others are stored")
