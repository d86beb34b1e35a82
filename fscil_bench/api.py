"""The Python interface, with the same power as the command line."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from fscil_bench.data.feature_file import FeatureFile, require_form, write_feature_file
from fscil_bench.data.feature_match import feature_file_of
from fscil_bench.defaults import FIRST_METHOD, REPRESENTATION
from fscil_bench.episodes.run import plan_episodes
from fscil_bench.episodes.run import run_episodes as make_episodes
from fscil_bench.episodes.store import StoredEpisodes, episodes_frame, stored_episodes
from fscil_bench.errors import FscilError, StoreError, UsageError, shown
from fscil_bench.grids.execution import run_grid
from fscil_bench.grids.graph import rows_of
from fscil_bench.grids.workers import Workers
from fscil_bench.options import Options, given_path
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import Registry, expand_methods, load_registry
from fscil_bench.progress import Progress, Silent, for_terminal
from fscil_bench.report import ReportOutput
from fscil_bench.reporting.document import files_folder, write_document
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.reporting.frame import Results, run_frame
from fscil_bench.request import (
    Design,
    Names,
    RunRequest,
    Seeds,
    Selection,
    parse_seeds,
    several,
    words,
)
from fscil_bench.running.commands import for_copies
from fscil_bench.running.missing import make_missing
from fscil_bench.running.series import make_all, requested
from fscil_bench.running.tuning import (
    Choice,
    Criterion,
    Tuning,
    checked_grid,
    default_grid,
    tuned_choice,
)
from fscil_bench.running.workbench import Workbench
from fscil_bench.store.runs import Store, StoredRun
from fscil_bench.testing import Verdict, check_plugins

if TYPE_CHECKING:
    import pandas as pd

KINDS: Mapping[str, tuple[Any, str]] = {
    **dict.fromkeys(
        ("tuned", "force", "artifacts", "run_missing", "strict"), (bool, "True or False")
    ),
    **dict.fromkeys(
        ("params", "representation_params", "overrides", "grid"),
        (Mapping | None, "a mapping of values by name"),
    ),
    **dict.fromkeys(("name", "method", "representation"), (str, "one name, as text")),
    **dict.fromkeys(("index_list", "folder"), (str | Path | None, "the path of a folder")),
    "protocol": (str | Path | None, "one name, or the path of a TOML file"),
    "split": (str | None, "its name, as text"),
    "views": (str, "plain or flip"),
    "workers": (Workers, "an object of Workers"),
    "options": (Options, "an object of Options"),
}
"""What arguments may be, by name, and how a message says it."""


@overload
def run(method: str, protocol: str | Path, *, seed: int = 0, **asked: Any) -> StoredRun: ...
@overload
def run(method: Names, protocol: Names, *, seed: Seeds = 0, **asked: Any) -> list[StoredRun]: ...
def run(
    method: Names,
    protocol: Names,
    *,
    seed: Seeds = 0,
    representation: Names = REPRESENTATION,
    representation_seed: Seeds = 0,
    params: Mapping[str, Any] | None = None,
    representation_params: Mapping[str, Any] | None = None,
    split: str | None = None,
    index_list: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    views: str = "plain",
    tuned: bool = False,
    force: bool = False,
    artifacts: bool = False,
    progress: bool | Progress = False,
    workers: Workers = Workers(),
    options: Options = Options(),
    **changes: Any,
) -> StoredRun | list[StoredRun]:
    """Run methods on protocols, or return the stored runs if there are some already.

    Names and seeds may be one or many, as on the command line; one of each returns its run, many
    return a list.

    Args:
        method: registered methods, or words for groups of them.
        protocol: registered protocols, or paths of TOML files.
        seed: which shots are drawn (split `seeded`), and the method's own noise.
        representation: registered representations.
        representation_seed: initialisation and order of base training.
        params: the method's parameters, where they differ from its defaults; of one of several
            methods as `METHOD.name`.
        representation_params: the representation's, likewise.
        split: `canonical`, `seeded` or `outlier:Q`; the protocol's default if not given.
        index_list: a folder of lists of shots in the published format, instead of a split.
        overrides: fields of the protocol or its recipe that are changed: `epochs`, `way`, `shot`,
            `base_classes`, `class_order` ...
        views: how frozen features are read: `plain`, or `flip`, averaged over image and mirror
            image.
        tuned: take the parameters that `tune` chose.
        force: run again even if the run is stored.
        artifacts: store the method's named arrays too.
        progress: True shows progress on stderr.
        workers: the processes that share the work; by default this one alone.
        options: where things lie and how to compute.
        changes: fields of `Options` by name: `results`, `data_root`, `device` ...

    Raises:
        FscilError: anything that is wrong with the request, the data or the store.
    """
    _check_kinds(
        params=params,
        representation_params=representation_params,
        split=split,
        index_list=index_list,
        overrides=overrides,
        views=views,
        tuned=tuned,
        force=force,
        artifacts=artifacts,
        workers=workers,
        options=options,
    )
    bench = Workbench.open(options.changed(**changes), _shown(progress))
    requests = requested(
        bench,
        method,
        protocol,
        representation=representation,
        seed=seed,
        representation_seed=representation_seed,
        params=params,
        representation_params=representation_params,
        overrides=overrides,
        tuned=tuned,
        views=views,
        split=split,
        index_list=given_path(index_list),
    )

    def told(title: str, made: object) -> None:
        _told(bench.progress, title, made)

    if workers.named:
        made = run_grid(bench, rows_of(bench, requests), workers, told, force, artifacts)
    else:
        made = make_all(
            [bench.plan(request) for request in requests],
            lambda plan: bench.run(plan, force, artifacts),
            lambda plan: plan.title,
            bench.progress,
            told,
            alike=lambda plan: plan.spec.row,
        )
    asked = (method, protocol, representation, seed, representation_seed)
    return made[0] if _single(made, *asked) else made


@overload
def run_episodes(
    method: str, protocol: str | Path, *, seed: int = 0, **asked: Any
) -> StoredEpisodes: ...
@overload
def run_episodes(
    method: Names, protocol: Names, *, seed: Seeds = 0, **asked: Any
) -> list[StoredEpisodes]: ...
def run_episodes(
    method: Names,
    protocol: Names,
    *,
    way: int = 5,
    shot: int = 5,
    queries: int | None = None,
    episodes: int = 600,
    seed: Seeds = 0,
    representation: Names = REPRESENTATION,
    representation_seed: Seeds = 0,
    params: Mapping[str, Any] | None = None,
    representation_params: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    views: str = "plain",
    tuned: bool = False,
    force: bool = False,
    progress: bool | Progress = False,
    options: Options = Options(),
    **changes: Any,
) -> StoredEpisodes | list[StoredEpisodes]:
    """Measure ordinary few-shot classification, or return what is stored of it already.

    Args:
        method: registered methods that learn episodes; one or many, as in `run`.
        protocol: registered protocols, or paths of TOML files; their new classes are drawn from.
        way: classes of an episode.
        shot: labelled images of each class, from the training half of the data.
        queries: images of each class to be classified, from the test half; by default 15, or as
            many as the class with the fewest has.
        episodes: how many are drawn.
        seed: decides the draws, which are the same for every method, and the method's own noise.
        representation: registered representations.
        representation_seed: initialisation and order of base training.
        params: the method's parameters, where they differ from its defaults.
        representation_params: the representation's, likewise.
        overrides: fields of the protocol or its recipe that are changed.
        views: how frozen features are read: `plain` or `flip`.
        tuned: take the parameters that `tune` chose.
        force: make them again even if they are stored.
        progress: True shows progress on stderr.
        options: where things lie and how to compute.
        changes: fields of `Options` by name.

    Raises:
        FscilError: anything that is wrong with the request, the data or the store.
    """
    _check_kinds(
        params=params,
        representation_params=representation_params,
        overrides=overrides,
        views=views,
        tuned=tuned,
        force=force,
        options=options,
    )
    bench = Workbench.open(options.changed(**changes), _shown(progress))
    requests = requested(
        bench,
        method,
        protocol,
        representation=representation,
        seed=seed,
        representation_seed=representation_seed,
        params=params,
        representation_params=representation_params,
        overrides=overrides,
        tuned=tuned,
        views=views,
    )
    sizes = {"way": way, "shot": shot, "queries": queries, "episodes": episodes}
    design = parse_params("an episode", Design, sizes)
    plans = [plan_episodes(bench, request, design) for request in requests]
    made = make_all(
        plans,
        lambda plan: make_episodes(bench, plan, force),
        lambda plan: plan.title,
        bench.progress,
        lambda title, made: _told(bench.progress, title, made),
        "sets of episodes",
        lambda plan: (plan.spec.run.row, plan.spec.design),
    )
    asked = (method, protocol, representation, seed, representation_seed)
    return made[0] if _single(made, *asked) else made


def tune(
    method: str,
    protocol: str | Path,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seeds: Seeds = "0-4",
    criterion: Criterion = "last",
    representation: str = REPRESENTATION,
    params: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: bool | Progress = False,
    options: Options = Options(),
    **changes: Any,
) -> Choice:
    """Choose a method's parameters on the pseudo-incremental split, and store the choice.

    Args:
        method: a registered method.
        protocol: a registered protocol, or the path of a TOML file.
        grid: values to try by parameter; every combination is tried. By default what the method
            proposes.
        seeds: seeds of shots over which each setting is averaged.
        criterion: `last`, `average` or `harmonic` accuracy.
        representation: a registered representation.
        params: parameters that stay.
        overrides: fields of the protocol or its recipe that are changed.
        progress: True shows progress on stderr.
        options: where things lie and how to compute.
        changes: fields of `Options` by name.

    Raises:
        FscilError: anything that is wrong with the request, the data or the store.
    """
    _check_kinds(
        method=method,
        grid=grid,
        representation=representation,
        params=params,
        overrides=overrides,
        options=options,
    )
    if not isinstance(protocol, str | Path):
        raise UsageError(f"protocol = {shown(protocol)}: give {KINDS['protocol'][1]}")
    bench = Workbench.open(options.changed(**changes), _shown(progress))
    request = RunRequest(
        method=method,
        protocol=str(protocol),
        representation=representation,
        params=params or {},
        overrides=overrides or {},
    )
    tried = checked_grid(
        bench.registry, request, default_grid(bench.registry, method) if grid is None else grid
    )
    choice, _ = tuned_choice(bench, Tuning(request, tried, parse_seeds(seeds), criterion))
    return choice


def check(*files: Path | str) -> list[Verdict]:
    """Hold every method and representation of plug-in files against its contract, in seconds.

    Args:
        files: Python files.

    Raises:
        UsageError: a file cannot be loaded, or none of them brings one.
    """
    return check_plugins(Options(plugins=files).plugin_files)


def export_features(
    protocol: str | Path,
    file: Path | str,
    *,
    representation: str = REPRESENTATION,
    representation_seed: int = 0,
    representation_params: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    views: str = "plain",
    force: bool = False,
    progress: bool | Progress = False,
    options: Options = Options(),
    **changes: Any,
) -> FeatureFile:
    """Write the features of all of a protocol's images, with labels and names, to a file.

    The network is trained if it is not stored. Classes are in the data set's own order, whatever
    the protocol's is, so that `run(..., features=file)` finds them.

    Args:
        protocol: a registered protocol, or the path of a TOML file.
        file: what to write; its ending says in which form.
        representation: a registered representation.
        representation_seed: initialisation and order of base training.
        representation_params: the representation's parameters, where they are not its defaults.
        overrides: fields of the protocol or its recipe that are changed.
        views: `plain`, or `flip`, averaged over image and mirror image.
        force: replace a file that is there.
        progress: True shows progress on stderr.
        options: where things lie and how to compute.
        changes: fields of `Options` by name.

    Raises:
        FscilError: anything that is wrong with the request, the data or the store.
    """
    _check_kinds(
        representation=representation,
        representation_params=representation_params,
        overrides=overrides,
        views=views,
        force=force,
        options=options,
    )
    path = Path(file)
    require_form(path)  # known now, and not after base training
    if path.exists() and not force:
        raise UsageError(f"{path}: is there already; --force replaces it")
    bench = Workbench.open(options.changed(**changes), _shown(progress))
    request = RunRequest(
        method=FIRST_METHOD,
        protocol=str(protocol),
        representation=representation,
        representation_params=representation_params or {},
        representation_seed=representation_seed,
        split="seeded",
        overrides=overrides or {},
        views=views,
    )
    plan = bench.plan(request)
    bench.prepare(plan)
    made = bench.features(plan, bench.trained(plan))["plain"]
    folder = bench.registry.protocol(request.protocol)[1]
    usual = bench.data.of(plan.spec.protocol.override(class_order="dataset"), folder)
    written = feature_file_of(path.stem, plan.dataset, made.train, made.test, usual.class_keys)
    write_feature_file(path, written)
    return written


def load_runs(
    results: Path | str | None = None, *, by: Literal["session", "run"] = "session"
) -> pd.DataFrame:
    """Return all stored runs as a frame, one row a run and session.

    By session, accuracies are fractions; with `by="run"` there is one row a run, indexed by key,
    with every measure in its unit (`fscil_bench.reporting.measures`). Only runs of one `row` and
    `version` may be averaged. Damaged runs are left out with a warning.

    Raises:
        UsageError: `results` is a file, or `by` is something else.
    """
    if by not in ("session", "run"):
        raise UsageError(f"by = {shown(by)}: give 'session' or 'run'")
    runs, errors = _store(Options(results=results)).runs()
    found = Results(Registry(), runs=tuple(runs))
    for problem in (*map(str, errors), *found.damaged.values()):
        warnings.warn(problem, stacklevel=2)
    return run_frame(found.frame) if by == "run" else found.frame


def load_episodes(results: Path | str | None = None) -> pd.DataFrame:
    """Return all stored few-shot episodes as a frame, one row a set; accuracies are fractions.

    Damaged ones are left out with a warning.

    Raises:
        UsageError: `results` is a file.
    """
    return episodes_frame(_store(Options(results=results)))


def make_report(
    name: str,
    protocol: str | Path | None = None,
    *,
    methods: Names = (),
    representations: Names = (),
    seeds: Seeds = (),
    split: str | None = None,
    params: Mapping[str, Any] | None = None,
    folder: Path | str | None = None,
    run_missing: bool = False,
    strict: bool = False,
    progress: bool | Progress = False,
    options: Options = Options(),
    **changes: Any,
) -> ReportOutput:
    """Draw a report from stored runs; its files go to `folder` or below the results.

    Args:
        name: name of a registered report.
        protocol: name of a protocol, or the TOML file of one.
        methods: these methods alone, or words for groups; by default what the report shows.
        representations: these representations alone, likewise.
        seeds: seeds that should be there.
        split: runs of this split alone.
        params: the report's parameters, where they differ from its defaults.
        folder: where the report's files go.
        run_missing: make the runs that the report needs and that are not stored, as `run` would
            with the same options; the output names those that failed.
        strict: fail, once the files are written, if anything stored cannot be read.
        progress: True shows progress on stderr.
        options: where things lie and how to compute.
        changes: fields of `Options` by name.

    Raises:
        FscilError: an unknown report or parameter, no folder of results, or nothing to draw from.
        StoreError: with `strict`, a stored run or set of episodes cannot be read.
    """
    _check_kinds(
        name=name,
        protocol=protocol,
        split=split,
        params=params,
        folder=folder,
        run_missing=run_missing,
        strict=strict,
        options=options,
    )
    options = options.changed(**changes)
    registry = load_registry(options.plugin_files)
    protocol = None if protocol is None else str(protocol)
    if protocol is not None and protocol.endswith(".toml"):
        protocol = registry.add_protocol_file(Path(protocol))
    plugin = registry.get("report", name)
    store = _store(options)
    named = tuple(expand_methods(words(methods, "methods"), registry))
    brought = tuple(words(representations, "representations"))
    selection = Selection(protocol, named, brought, parse_seeds(seeds), split)
    asked = parse_params(f"report {name!r}", plugin.value.Params, params or {})
    known = Results(registry, selection, evaluation=Evaluation(store, registry))
    failures: tuple[str, ...] = ()
    if run_missing:
        stored = replace(known, runs=tuple(store.runs()[0]))
        wanted = plugin.value(stored).requests(asked)
        if not wanted:
            raise UsageError(
                f"report {name!r} draws what is stored and asks for no run of its own, so that "
                "there is nothing for --run-missing to make; it names with a command each what it "
                "lacks"
            )
        failures = make_missing(Workbench(store, registry, _shown(progress), options), wanted)
    runs, problems = store.runs()
    episodes, damaged = stored_episodes(store)
    unread = tuple(str(problem) for problem in [*problems, *damaged])
    known = replace(
        known,
        runs=tuple(runs),
        episodes=tuple(episodes),
        unread_runs=_left_out(problems, store.results / "runs", protocol),
        unread_episodes=_left_out(damaged, store.results / "episodes", protocol),
    )
    target = given_path(folder) or store.report_folder(name, protocol)
    part = replace(selection, methods=(), seeds=()) if plugin.value.whole else selection
    target = files_folder(target, part, asked)
    try:
        document = plugin.value(known).build(known.frame, asked)
        lacks = [
            replace(lack, command=for_copies(lack.command, registry, known.copies))
            for lack in document.lacks
        ]
        document = replace(document, lacks=lacks)
        output = write_document(document, target, name)
    except FscilError as error:
        there = options.results is None or store.results.exists()
        notes = [] if there else [f"the folder {store.results} does not exist"]
        notes += ["runs that cannot be read:", *unread] if unread else []
        notes += ["runs that could not be made:", *failures] if failures else []
        if not notes:
            raise
        raise type(error)("\n".join([str(error), *notes])) from error
    told = "\n".join(output.warnings)
    untold = (problem for problem in unread if problem not in told)
    missing = tuple(map(options.completed, output.missing))
    warned = (*output.warnings, *untold)
    output = replace(output, missing=missing, warnings=warned, failures=failures)
    if strict:
        refuse_unread(output, options)
    return output


def _left_out(problems: Iterable[StoreError], root: Path, protocol: str | None) -> tuple[str, ...]:
    """Return what a report on a protocol says of records below `root` that cannot be read."""
    place = f"{root / protocol}{os.sep}" if protocol else ""
    return tuple(f"left out: {problem}" for problem in problems if str(problem).startswith(place))


def refuse_unread(output: ReportOutput, options: Options) -> None:
    """Refuse a report that was made beside stored results that cannot be read.

    Predictions that the report had no need of are looked at too.

    Raises:
        StoreError: there are some; all are named.
    """
    store = Store.of(options)
    arrays = [run.damage for run in store.runs()[0]]
    arrays += [episodes.damage for episodes in stored_episodes(store)[0]]
    told = "\n".join(output.warnings)
    unread = [*output.warnings, *(damage for damage in arrays if damage and damage not in told)]
    if unread:
        listed = "\n  ".join(unread)
        raise StoreError(f"stored results that cannot be read:\n  {listed}")


def _single(made: Sequence[Any], *asked: object) -> bool:
    """Return whether one thing was asked for on every axis, and not a list of one."""
    return len(made) == 1 and not any(map(several, asked))


def _check_kinds(**given: object) -> None:
    """Refuse arguments that are not of their kind, which nothing checks before they act.

    Raises:
        UsageError: there is one; its name and value are told.
    """
    for name, value in given.items():
        kind, told = KINDS[name]
        keys = value if isinstance(value, Mapping) else ()
        if not isinstance(value, kind) or not all(isinstance(key, str) for key in keys):
            raise UsageError(f"{name} = {shown(value)}: give {told}")


def _store(options: Options) -> Store:
    store = Store.of(options)
    if store.results.is_file():
        raise UsageError(f"{store.results}: a file, and no folder of results")
    return store


def _told(progress: Progress, title: str, made: object) -> None:
    progress.say(f"{title}: {made}" if isinstance(made, BaseException) else title)


def _shown(progress: bool | Progress) -> Progress:
    if isinstance(progress, bool):
        return for_terminal() if progress else Silent()
    if not callable(getattr(progress, "task", None)):
        raise UsageError(f"progress = {shown(progress)}: give True, False or an object of Progress")
    return progress
