"""The command line: `fscil-bench run | list | report`, and what other modules bring."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fscil_bench import __version__
from fscil_bench.cli.check import check
from fscil_bench.cli.cite import cite
from fscil_bench.cli.data import data_app
from fscil_bench.cli.episodes import episodes
from fscil_bench.cli.features import features_app
from fscil_bench.cli.grids import show_grid, status
from fscil_bench.cli.networks import networks_app
from fscil_bench.cli.options import (
    NO_TEXTS,
    TYPED,
    Asked,
    Force,
    Methods,
    Overrides,
    command,
    complain,
    heed_termination,
    listed,
    naming_places,
    open_workbench,
    parse_settings,
    say,
    say_tables,
    show,
    survive_encodings,
    use_free_cores,
)
from fscil_bench.cli.results import results_app
from fscil_bench.cli.tune import tune
from fscil_bench.errors import FscilError, StoreError
from fscil_bench.grids.workers import Workers
from fscil_bench.options import PLACES, Options, given_path
from fscil_bench.request import parse_seeds, words

if TYPE_CHECKING:
    from fscil_bench.plugins.registry import Registry
    from fscil_bench.protocol import Protocol
    from fscil_bench.spec import RunSpec
    from fscil_bench.store.runs import StoredRun


class _Root(TyperGroup):
    """Keeps the words that were typed, for messages that repeat a command."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Return the context of a command, with the words."""
        typed = tuple(args)
        context = super().make_context(info_name, args, parent, **extra)
        context.meta[TYPED] = typed
        return context


app = typer.Typer(
    cls=_Root,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.add_typer(data_app, name="data")
app.add_typer(features_app, name="features")
app.add_typer(networks_app, name="networks")
app.add_typer(results_app, name="results")
app.command()(tune)
app.command()(episodes)
app.command()(check)
app.command()(cite)
app.command()(status)
MOST_COMMANDS = 10
"""Commands of missing runs that are written out."""


def _version(asked: bool) -> None:
    if asked:
        show(f"fscil-bench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Few-shot class-incremental learning, measured on equal terms."""
    del version


class Listable(StrEnum):
    """What can be listed."""

    methods = "methods"
    representations = "representations"
    backbones = "backbones"
    protocols = "protocols"
    reports = "reports"
    runs = "runs"
    episodes = "episodes"


@app.command()
@command()
def run(
    asked: Asked,
    options: Options,
    overrides: Overrides,
    workers: Workers,
    force: Force = False,
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Store the methods' named arrays too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be made, and in what time.")
    ] = False,
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
) -> None:
    """Train a representation, take methods through all sessions, store what they predict.

    A run that is stored is not run again. Interrupted training resumes.
    """
    from fscil_bench.cli.summary import alarms, summary_line, summary_table
    from fscil_bench.grids.execution import run_grid
    from fscil_bench.grids.graph import rows_of
    from fscil_bench.running.series import make_all
    from fscil_bench.store.files import now

    bench = open_workbench(options)
    requests = asked.requests(bench, overrides)
    if dry_run:
        show_grid(bench, requests, workers, force, artifacts)
        return
    # Everything is planned first, so that a bad request stops before any work.
    rows = rows_of(bench, requests) if workers.named else []
    plans = [row.plan for row in rows] or [bench.plan(request) for request in requests]
    first = [row.request for row in rows] or requests
    names = [plan.spec.protocol.name for plan in plans]
    named = {
        name: name if asked.pseudo else request.protocol
        for name, request in zip(names, first, strict=True)
    }
    finished: list[StoredRun] = []
    started = now()

    def told(title: str, made: StoredRun | BaseException) -> None:
        if isinstance(made, BaseException):
            bench.progress.say(title)
            complain(made, debug)
        else:
            finished.append(made)
            known = "stored already, not made again; " * (made.record.created < started)
            bench.progress.say(f"{title}: {known}{summary_line(made)}")
            for alarm in alarms(made, bench.registry):
                bench.data.say_once(f"warning: {alarm}")

    try:
        if workers.named:
            run_grid(bench, rows, workers, told, force, artifacts)
        else:
            make_all(
                plans,
                lambda plan: bench.run(plan, force, artifacts),
                lambda plan: plan.title,
                bench.progress,
                told,
                alike=lambda plan: plan.spec.row,
            )
    finally:
        if len(finished) > 1:
            show(summary_table(finished, bench.registry))
        for name in sorted({each.spec.protocol.name for each in finished}):
            own = [each.spec for each in finished if each.spec.protocol.name == name]
            say_tables({name: named[name]}, options, *_table_of(own, asked, overrides))


def _table_of(specs: Sequence[RunSpec], asked: Asked, overrides: Overrides) -> list[str]:
    """Return the report that shows finished runs of a protocol, and the options that it takes."""
    from fscil_bench.protocol import Recipe

    given, split = overrides.given(), specs[0].split
    drawn = split != specs[0].protocol.split
    brought = {spec.representation.name for spec in specs}
    if len(brought) > 1 and set(given) <= set(Recipe.model_fields):
        every = bool(asked.settings or asked.representation_settings or asked.tuned)
        words = ["grid", *(["--split", split] if drawn else [])]
    else:
        every = bool(given) or asked.views != "plain" or asked.split is not None or drawn
        words = ["main-table"]
    return [*words, *(["--set", "all=true"] if every else [])]


@app.command(name="list")
@command(only=("results", "plugins"))
def list_(
    what: Annotated[Listable, typer.Argument(help="What to list.")], options: Options
) -> None:
    """List methods, representations, backbones, protocols, reports, stored runs or episodes."""
    if what in (Listable.runs, Listable.episodes):
        stored = _list_runs if what is Listable.runs else _list_episodes
        stored(options, _registry(options))
        return
    registry = _registry(options)
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
@command()
def report(
    name: Annotated[str, typer.Argument(help="The report's name; see `list reports`.")],
    options: Options,
    compared: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD]...", help="Methods, as --method names them."),
    ] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", "-p", help="Protocol.")] = None,
    method: Methods = NO_TEXTS,
    representation: Annotated[list[str], typer.Option(help="Representations.")] = NO_TEXTS,
    seeds: Annotated[
        str | None, typer.Option("--seeds", "--seed", help="Seeds that should be there.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Runs of this split alone. (default: each its own row)")
    ] = None,
    settings: Annotated[
        list[str], typer.Option("--set", help="A parameter of the report, name=value.")
    ] = NO_TEXTS,
    out: Annotated[
        Path | None,
        typer.Option(
            parser=given_path,
            metavar="<path>",
            help="Folder of the report's files; replaces those of the same name.",
        ),
    ] = None,
    run_missing: Annotated[
        bool,
        typer.Option(
            "--run-missing",
            help="Make the runs that a study or the grid needs and that are not stored.",
        ),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail if any stored run or episodes cannot be read."),
    ] = False,
) -> None:
    """Draw a table or figure from stored runs; name the runs it lacks, or make them.

    --data-root, --device, --precision, --threads, --weights, --features, --network,
    --unofficial-data and --skip-broken are for --run-missing.
    """
    from fscil_bench.api import make_report, refuse_unread

    if run_missing:
        use_free_cores(options)
    with naming_places(options):
        output = make_report(
            name,
            protocol,
            methods=words([*(compared or []), *method]),
            representations=words(representation),
            seeds=parse_seeds(seeds) if seeds is not None else (),
            split=split,
            params=parse_settings(settings),
            folder=out,
            run_missing=run_missing,
            progress=run_missing,
            options=options,
        )
    show(output.text)
    for warning in output.warnings:
        say(f"warning: {warning}")
    for file in output.files:
        say(f"wrote {file}")
    for file in output.files:
        if file.suffix == ".html" and file.stem == "index":
            say(f"open in a browser: {file.resolve().as_uri()}")
    _say_missing(output.missing, options)
    if output.failures:
        reasons = listed(output.failures)
        raise FscilError(f"runs that could not be made; the others are stored:\n  {reasons}")
    if strict:
        refuse_unread(output, options)


def _say_missing(commands: Sequence[str], options: Options) -> None:
    """Say the commands of missing runs, if they must name data or results that were named."""
    places = shlex.join(options.words(*PLACES))
    if not commands or not places:
        return
    say("missing runs, for these results:")
    for each in commands[:MOST_COMMANDS]:
        say(f"  {each}")
    if len(commands) > MOST_COMMANDS:
        say(f"  and {len(commands) - MOST_COMMANDS} more: add {places}")


def describe(kind: str, value: Any) -> str:
    """Return one line on a plug-in: a protocol's shape, or the first line of a docstring."""
    if kind == "protocol":
        return (
            f"{value.title}: {value.base_classes} + {_sessions_text(value)} classes, "
            f"{value.shot}-shot, {value.images.size}×{value.images.size}, {value.backbone}, "
            f"{value.recipe.epochs} epoch{'s' * (value.recipe.epochs != 1)}"
        )
    return (value.__doc__ or "").strip().partition("\n")[0]


def _sessions_text(protocol: Any) -> str:
    uneven = len(set(protocol.ways)) > 1
    return f"({protocol.way_text})" if uneven else f"{protocol.sessions} × {protocol.way_text}"


def _describe_params(value: Any) -> str:
    from dataclasses import fields

    schema = getattr(value, "Params", None)
    if schema is None:
        return ""
    return ", ".join(f"{field.name}={field.default}" for field in fields(schema))


def _list_runs(options: Options, registry: Registry) -> None:
    from fscil_bench.running.commands import named_with_changes
    from fscil_bench.spec import brought_title
    from fscil_bench.store.runs import Store

    store = Store.of(options)
    runs, problems = store.runs()
    for run_ in runs:
        try:
            last = run_.accuracies[-1]
        except StoreError as error:
            problems.append(error)
            continue
        spec, brought = run_.spec, run_.spec.representation
        show(
            f"{run_.key}  {run_.record.created}  {spec.protocol.name}  "
            f"{named_with_changes(spec, registry)} ({spec.protocol.way_text}-way "
            f"{spec.protocol.shot}-shot, {brought_title(brought)}, {spec.split}, seed {spec.seed}, "
            f"representation seed {brought.seed}{_changes(spec.protocol, registry)})  "
            f"last {100 * last:.2f} %"
        )
    for problem in problems:
        say(f"warning: {problem}")
    if not runs:
        say(f"no runs in {store.results}")


def _changes(protocol: Protocol, registry: Registry) -> str:
    """Return, after a comma, what but way and shot is not the registered protocol's."""
    from fscil_bench.running.commands import changes

    usual = {} if protocol.name in registry.names("protocol") else {"class_order": "dataset"}
    return "".join(
        f", {name} {value}"
        for name, value in changes(protocol, registry).items()
        if name not in ("way", "shot") and usual.get(name) != value
    )


def _list_episodes(options: Options, registry: Registry) -> None:
    from fscil_bench.episodes.store import episodes_row, stored_episodes
    from fscil_bench.reporting.tables import mean_text
    from fscil_bench.running.commands import named_with_changes
    from fscil_bench.spec import brought_title
    from fscil_bench.store.runs import Store

    store = Store.of(options)
    found, problems = stored_episodes(store)
    for each in found:
        try:
            row = episodes_row(each)
        except StoreError as error:
            problems.append(error)
            continue
        brought = brought_title(each.spec.run.representation)
        show(
            f"{row['key']}  {row['created']}  {row['protocol']}  "
            f"{named_with_changes(each.spec.run, registry)} ({each.spec.design.title}, "
            f"{row['queries']} queries, {brought}, seed {row['seed']}, "
            f"representation seed {row['representation_seed']}"
            f"{_changes(each.spec.run.protocol, registry)})  "
            f"{mean_text(100 * row['accuracy'], 100 * row['half_width'])} % over "
            f"{row['episodes']} episode{'s' * (row['episodes'] > 1)}"
        )
    for problem in problems:
        say(f"warning: {problem}")
    if not found:
        say(f"no episodes in {store.results}")


def _registry(options: Options) -> Registry:
    from fscil_bench.plugins.registry import load_registry

    return load_registry(options.plugin_files)


def main() -> None:
    """Run the command line; what it writes survives any encoding of its streams."""
    survive_encodings()
    heed_termination()
    app()
