"""The command line: `fscil-bench run | list | report`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fscil_bench.cli.data import data_app
from fscil_bench.cli.episodes import episodes
from fscil_bench.cli.options import (
    RESULTS_HINT,
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
    fitting_methods,
    naming_results,
    open_workbench,
    parse_seeds,
    parse_settings,
    say,
    show,
    words,
)
from fscil_bench.cli.tune import tune
from fscil_bench.errors import FscilError, StoreError, UsageError

if TYPE_CHECKING:
    from fscil_bench.plugins.registry import Registry
    from fscil_bench.request import RunRequest
    from fscil_bench.running.workbench import Plan, Workbench
    from fscil_bench.store.runs import StoredRun

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Few-shot class-incremental learning, measured on equal terms.",
)


app.add_typer(data_app, name="data")
app.command()(tune)
app.command()(episodes)


class Listable(StrEnum):
    """What can be listed."""

    methods = "methods"
    representations = "representations"
    protocols = "protocols"
    reports = "reports"
    runs = "runs"
    episodes = "episodes"


Methods = Annotated[
    list[str],
    typer.Option(
        "--method",
        "-m",
        help="Methods, comma-separated or repeated; all-frozen, all-images or all stand for many.",
    ),
]
Seeds = Annotated[str, typer.Option("--seeds", "--seed", help="Seeds: 0, 0-9 or 0,2,5-7.")]
Sets = Annotated[
    list[str],
    typer.Option("--set", help="A parameter, name=value or METHOD.name=value. Repeatable."),
]
Split = Annotated[
    str | None,
    typer.Option(
        help="canonical (published shots), seeded, or outlier:Q (shots from the fraction Q of a "
        "class farthest from its mean). (default: the protocol's)"
    ),
]


@app.command()
@explained
def run(
    method: Methods,
    protocol: Annotated[
        list[str], typer.Option("--protocol", "-p", help="Protocols by name, or TOML files.")
    ],
    representation: Annotated[
        list[str], typer.Option(help="What is trained on the base session.")
    ] = ["cosine"],  # noqa: B006 - typer reads the default, nothing changes it
    seeds: Seeds = "0",
    representation_seed: Annotated[
        str, typer.Option(help="Seeds of base training, like --seeds.")
    ] = "0",
    split: Split = None,
    index_list: Annotated[
        Path | None,
        typer.Option(help="Folder of session_2.txt ..., lists of shots in the published format."),
    ] = None,
    settings: Sets = [],  # noqa: B006
    representation_settings: Annotated[
        list[str],
        typer.Option("--set-representation", help="A parameter of the representation."),
    ] = [],  # noqa: B006
    epochs: Annotated[
        int | None, typer.Option(help="Base-training epochs. (default: the recipe's)")
    ] = None,
    way: Annotated[int | None, typer.Option(help="New classes a session.")] = None,
    shot: Annotated[int | None, typer.Option(help="Images of each new class.")] = None,
    base_classes: Annotated[int | None, typer.Option(help="Classes of the base session.")] = None,
    sessions: Annotated[int | None, typer.Option(help="Sessions after the base session.")] = None,
    class_order: Annotated[
        str | None, typer.Option(help="dataset (the data set's own) or seed:N (a permutation).")
    ] = None,
    pseudo: Annotated[
        bool,
        typer.Option(
            "--pseudo-incremental",
            help="Let base classes play the new ones and training images the test images.",
        ),
    ] = False,
    views: ViewsOption = "plain",
    data_root: DataRoot = None,
    device: Device = "auto",
    precision: Precision = "auto",
    weights: Weights = None,
    unofficial_data: UnofficialData = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that cannot be decoded.")
    ] = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Take the parameters that `tune` chose.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Run again what is stored.")] = False,
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Store the methods' named arrays too.")
    ] = False,
    results: Results = None,
    cache: Cache = None,
    plugin: Plugins = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """Train a representation, take methods through all sessions, store what they predict.

    A run that is stored is not run again. Interrupted training resumes.
    """
    asked = words(method)
    for option, found in (
        ("method", asked),
        ("protocol", words(protocol)),
        ("representation", words(representation)),
    ):
        if not found:
            raise UsageError(
                f"--{option} names no {option}; `fscil-bench list {option}s` lists them"
            )
    base = parse_settings(representation_settings)
    from fscil_bench.plugins.registry import expand_methods

    registry = _registry(plugin)
    names = expand_methods(asked, registry)
    changes = assign_settings(settings, names, registry)
    from fscil_bench.request import RunRequest

    bench = open_workbench(
        registry,
        results,
        cache,
        data_root,
        device,
        precision,
        weights,
        unofficial_data,
        skip_broken,
    )
    options = {
        "epochs": epochs,
        "way": way,
        "shot": shot,
        "base_classes": base_classes,
        "sessions": sessions,
        "class_order": class_order,
    }
    changed = {name: value for name, value in options.items() if value is not None}
    requests = [
        RunRequest(
            method=name,
            protocol=place,
            representation=brought,
            params=changes[name],
            representation_params=base,
            seed=seed,
            representation_seed=base_seed,
            split=split,
            index_list=index_list,
            overrides=changed,
            views=views,
            pseudo=pseudo,
        )
        for place in words(protocol)
        for brought in words(representation)
        for base_seed in parse_seeds(representation_seed)
        for name in fitting_methods(asked, names, brought, registry)
        for seed in parse_seeds(seeds)
    ]
    if tuned:
        from fscil_bench.running.tuning import with_choices

        requests = with_choices(bench, requests)
    _run_all(bench, requests, force, artifacts, debug)


@app.command(name="list")
@explained
def list_(
    what: Annotated[Listable, typer.Argument(help="What to list.")],
    results: Results = None,
    plugin: Plugins = [],  # noqa: B006
    debug: Debug = False,
) -> None:
    """List methods, representations, protocols or reports, or stored runs or episodes."""
    del debug
    if what in (Listable.runs, Listable.episodes):
        stored = _list_runs if what is Listable.runs else _list_episodes
        stored(results, _registry(plugin))
        return
    registry = _registry(plugin)
    kind = what.value.removesuffix("s")
    for name in registry.names(kind):
        entry = registry.get(kind, name)
        show(f"{name:<20} {describe(kind, entry.value)}")
        params = _describe_params(entry.value)
        if params:
            show(f"{'':<20}   {params}")
        if entry.origin != "built in":
            show(f"{'':<20}   from {entry.file} ({entry.origin})")


@app.command()
@explained
def report(
    name: Annotated[str, typer.Argument(help="The report's name; see `list reports`.")],
    compared: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD]...", help="Methods, as --method names them."),
    ] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", "-p", help="Protocol.")] = None,
    method: Methods = [],  # noqa: B006
    representation: Annotated[list[str], typer.Option(help="Representations.")] = [],  # noqa: B006
    seeds: Annotated[
        str | None, typer.Option("--seeds", "--seed", help="Seeds that should be there.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Runs of this split alone. (default: each its own row)")
    ] = None,
    settings: Annotated[
        list[str], typer.Option("--set", help="A parameter of the report, name=value.")
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the report's files; replaces those of the same name."),
    ] = None,
    run_missing: Annotated[
        bool,
        typer.Option("--run-missing", help="Make the runs that it needs and that are not stored."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail if any stored run or episodes cannot be read."),
    ] = False,
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
    """Draw a table or figure from stored runs; name the runs it lacks, or make them.

    --data-root, --device, --precision, --weights and --unofficial-data are for --run-missing.
    """
    del debug
    from fscil_bench.api import make_report, refuse_unread

    with naming_results(results):
        output = make_report(
            name,
            protocol,
            methods=words([*(compared or []), *method]),
            representations=words(representation),
            seeds=parse_seeds(seeds) if seeds is not None else (),
            split=split,
            params=parse_settings(settings),
            results=results,
            folder=out,
            plugins=plugin,
            run_missing=run_missing,
            data_root=data_root,
            cache=cache,
            device=device,
            precision=precision,  # type: ignore[arg-type]  # resolve_precision refuses the rest
            weights=weights,
            unofficial_data=unofficial_data,
            progress=run_missing,
        )
    show(output.text)
    for warning in output.warnings:
        say(f"warning: {warning}")
    for file in output.files:
        say(f"wrote {file}")
    if output.missing and results is not None:
        say(RESULTS_HINT.format(results))
    if output.failures:
        listed = "\n  ".join(output.failures)
        raise FscilError(f"runs that could not be made; the others are stored:\n  {listed}")
    if strict:
        refuse_unread(output, results)


def describe(kind: str, value: Any) -> str:
    """Return one line on a plug-in: a protocol's shape, or the first line of a docstring."""
    if kind == "protocol":
        return (
            f"{value.title}: {value.base_classes} + {value.sessions} × {value.way} classes, "
            f"{value.shot}-shot, {value.images.size}×{value.images.size}, {value.backbone}, "
            f"{value.recipe.epochs} epoch{'s' * (value.recipe.epochs != 1)}"
        )
    return (value.__doc__ or "").strip().partition("\n")[0]


def _describe_params(value: Any) -> str:
    from dataclasses import fields

    schema = getattr(value, "Params", None)
    if schema is None:
        return ""
    return ", ".join(f"{field.name}={field.default}" for field in fields(schema))


def _list_runs(results: Path | None, registry: Registry) -> None:
    from fscil_bench.running.commands import named_with_changes
    from fscil_bench.store.runs import Store, run_row

    runs, problems = Store(results).runs()
    for run_ in runs:
        try:
            row = run_row(run_)
        except StoreError as error:
            problems.append(error)
            continue
        name = named_with_changes(run_.spec, registry)
        shape = f"{run_.spec.protocol.way}-way {run_.spec.protocol.shot}-shot"
        show(
            f"{row['key']}  {row['created']}  {row['protocol']}  {name} ({shape}, "
            f"{row['representation']}, {row['split']}, seed {row['seed']}, "
            f"representation seed {row['representation_seed']})  "
            f"last {100 * row['last_accuracy']:.2f} %"
        )
    for problem in problems:
        say(f"warning: {problem}")
    if not runs:
        say(f"no runs in {Store(results).results}")


def _list_episodes(results: Path | None, registry: Registry) -> None:
    from fscil_bench.episodes.store import episodes_row, stored_episodes
    from fscil_bench.running.commands import named_with_changes
    from fscil_bench.store.runs import Store

    found, problems = stored_episodes(Store(results))
    for each in found:
        try:
            row = episodes_row(each)
        except StoreError as error:
            problems.append(error)
            continue
        show(
            f"{row['key']}  {row['created']}  {row['protocol']}  "
            f"{named_with_changes(each.spec.run, registry)} ({each.spec.design.title}, "
            f"{row['queries']} queries, {row['representation']}, seed {row['seed']}, "
            f"representation seed {row['representation_seed']})  "
            f"{100 * row['accuracy']:.2f} ± {100 * row['half_width']:.2f} % over "
            f"{row['episodes']} episodes"
        )
    for problem in problems:
        say(f"warning: {problem}")
    if not found:
        say(f"no episodes in {Store(results).results}")


def _run_all(
    bench: Workbench, requests: list[RunRequest], force: bool, artifacts: bool, debug: bool
) -> None:
    """Plan everything first, so that a bad request stops before any work, then run it."""
    from fscil_bench.cli.summary import summary_table

    plans: list[Plan] = [bench.plan(request) for request in requests]
    failures, finished = 0, []
    with bench.progress.task("runs", len(plans)) as task:
        for number, plan in enumerate(plans):
            title = f"{plan.spec.method} on {plan.spec.protocol.name}, seed {plan.spec.seed}"
            task.update(number, title)
            try:
                finished.append(bench.run(plan, force, artifacts))
                bench.progress.say(_summary(finished[-1], title))
            except (Exception, SystemExit) as error:
                # One method's failure must not cost the others their runs.
                if len(plans) == 1:
                    raise
                failures += 1
                bench.progress.say(title)
                complain(error, debug)
            task.update(number + 1)
    if len(finished) > 1:
        show(summary_table(finished, bench.registry))
    names = sorted({run.spec.protocol.name for run in finished})
    for name in names:
        say(f"table: fscil-bench report main-table --protocol {name}")
    if failures:
        rest = "; the others are stored" if finished else ""
        raise FscilError(f"{failures} of {len(plans)} runs failed{rest}")


def _summary(stored: StoredRun, title: str) -> str:
    last = stored.metrics[-1]
    return (
        f"{title}: last session {100 * last.accuracy:.2f} % "
        f"(base {100 * last.base:.2f}, new {100 * last.new:.2f}) of {last.images} test images in "
        f"{last.classes} classes  [{stored.folder}]"
    )


def _registry(files: list[Path]) -> Registry:
    from fscil_bench.plugins.registry import load_registry

    return load_registry(tuple(files))


def main() -> None:
    """Run the command line."""
    app()
