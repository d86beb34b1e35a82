"""The Python interface, with the same power as the command line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fscil_bench.episodes.run import plan_episodes, run_episodes
from fscil_bench.episodes.store import StoredEpisodes, episodes_frame, stored_episodes
from fscil_bench.errors import FscilError, StoreError, UsageError
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import expand_methods, load_registry
from fscil_bench.progress import Progress, Silent, for_terminal
from fscil_bench.report import ReportInput, ReportOutput
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.request import Design, RunRequest, Selection
from fscil_bench.running.missing import make_missing, wanted_by
from fscil_bench.running.workbench import Options, Workbench
from fscil_bench.store.runs import Store, StoredRun, data_roots
from fscil_bench.training.compute import PrecisionChoice

if TYPE_CHECKING:
    import pandas as pd


def run(
    method: str,
    protocol: str,
    *,
    seed: int = 0,
    representation: str = "cosine",
    params: Mapping[str, Any] | None = None,
    representation_params: Mapping[str, Any] | None = None,
    representation_seed: int = 0,
    split: str | None = None,
    index_list: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    views: str = "plain",
    data_root: Path | str | None = None,
    results: Path | str | None = None,
    cache: Path | str | None = None,
    device: str = "auto",
    precision: PrecisionChoice = "auto",
    weights: Path | str | None = None,
    unofficial_data: bool = False,
    skip_broken: bool = False,
    plugins: Sequence[Path | str] = (),
    force: bool = False,
    artifacts: bool = False,
    progress: bool | Progress = False,
) -> StoredRun:
    """Run one method on one protocol, or return the stored run if there is one already.

    Args:
        method: name of a registered method.
        protocol: name of a registered protocol, or the path of a TOML file.
        seed: which shots are drawn (split `seeded`), and the method's own noise.
        representation: name of a registered representation.
        params: the method's parameters, where they differ from its defaults.
        representation_params: the representation's, likewise.
        representation_seed: initialisation and order of base training.
        split: `canonical` or `seeded`; the protocol's default if not given.
        index_list: a folder of lists of shots in the published format, instead of a split.
        overrides: fields of the protocol or its recipe that are changed: `epochs`, `way`, `shot`,
            `base_classes`, `class_order` ...
        views: how frozen features are read: `plain`, or `flip`, averaged over image and mirror
            image.
        data_root: folder (or archive) in which data sets are looked for.
        results: folder of results; default $FSCIL_BENCH_RESULTS or ./results.
        cache: folder of caches; default $FSCIL_BENCH_CACHE or the system's.
        device: `auto`, `cpu`, `cuda`, `cuda:1` ...
        precision: of base training; `auto` is bf16 where the hardware computes it.
        weights: a file of pre-trained weights, or `none`; by default what the protocol wants.
        unofficial_data: use a copy of the data that is not the published one; the run is marked.
        skip_broken: leave out images that cannot be decoded; the run says how many.
        plugins: Python files that bring further plug-ins.
        force: run again even if the run is stored.
        artifacts: store the method's named arrays too.
        progress: True shows progress on stderr.

    Raises:
        FscilError: anything that is wrong with the request, the data or the store.
    """
    options = Options(
        data_roots=data_roots(_path(data_root)),
        device=device,
        precision=precision,
        weights=None if weights is None else str(weights),
        unofficial_data=unofficial_data,
        skip_broken=skip_broken,
    )
    bench = _workbench(results, cache, plugins, progress, options)
    request = RunRequest(
        method=method,
        protocol=protocol,
        representation=representation,
        params=params or {},
        representation_params=representation_params or {},
        seed=seed,
        representation_seed=representation_seed,
        split=split,
        index_list=_path(index_list),
        overrides=overrides or {},
        views=views,
    )
    return bench.run(bench.plan(request), force, artifacts)


def episodes(
    method: str,
    protocol: str,
    *,
    way: int = 5,
    shot: int = 5,
    queries: int = 15,
    episodes: int = 600,
    seed: int = 0,
    representation: str = "cosine",
    params: Mapping[str, Any] | None = None,
    representation_params: Mapping[str, Any] | None = None,
    representation_seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
    views: str = "plain",
    data_root: Path | str | None = None,
    results: Path | str | None = None,
    cache: Path | str | None = None,
    device: str = "auto",
    precision: PrecisionChoice = "auto",
    weights: Path | str | None = None,
    unofficial_data: bool = False,
    plugins: Sequence[Path | str] = (),
    force: bool = False,
    progress: bool | Progress = False,
) -> StoredEpisodes:
    """Measure ordinary few-shot classification, or return what is stored of it already.

    Args:
        method: name of a registered method that learns episodes.
        protocol: name of a registered protocol, or the path of a TOML file; its new classes are
            drawn from.
        way: classes of an episode.
        shot: labelled images of each class, from the training half of the data.
        queries: images of each class to be classified, from the test half.
        episodes: how many are drawn.
        seed: decides the draws, which are the same for every method, and the method's own noise.
        representation: name of a registered representation.
        params: the method's parameters, where they differ from its defaults.
        representation_params: the representation's, likewise.
        representation_seed: initialisation and order of base training.
        overrides: fields of the protocol or its recipe that are changed.
        views: how frozen features are read: `plain` or `flip`.
        data_root: folder (or archive) in which data sets are looked for.
        results: folder of results; default $FSCIL_BENCH_RESULTS or ./results.
        cache: folder of caches; default $FSCIL_BENCH_CACHE or the system's.
        device: `auto`, `cpu`, `cuda`, `cuda:1` ...
        precision: of base training; `auto` is bf16 where the hardware computes it.
        weights: a file of pre-trained weights, or `none`; by default what the protocol wants.
        unofficial_data: use a copy of the data that is not the published one.
        plugins: Python files that bring further plug-ins.
        force: make them again even if they are stored.
        progress: True shows progress on stderr.

    Raises:
        FscilError: anything that is wrong with the request, the data or the store.
    """
    options = Options(
        data_roots=data_roots(_path(data_root)),
        device=device,
        precision=precision,
        weights=None if weights is None else str(weights),
        unofficial_data=unofficial_data,
    )
    bench = _workbench(results, cache, plugins, progress, options)
    request = RunRequest(
        method=method,
        protocol=protocol,
        representation=representation,
        params=params or {},
        representation_params=representation_params or {},
        seed=seed,
        representation_seed=representation_seed,
        overrides=overrides or {},
        views=views,
    )
    design = {"way": way, "shot": shot, "queries": queries, "episodes": episodes}
    planned = plan_episodes(bench, request, parse_params("an episode", Design, design))
    return run_episodes(bench, planned, force)


def load_runs(results: Path | str | None = None) -> pd.DataFrame:
    """Return all stored runs as a frame, one row a run; accuracies are fractions.

    Damaged runs are left out with a warning.
    """
    return Store(_path(results)).frame()


def load_episodes(results: Path | str | None = None) -> pd.DataFrame:
    """Return all stored few-shot episodes as a frame, one row a set; accuracies are fractions.

    Damaged ones are left out with a warning.
    """
    return episodes_frame(Store(_path(results)))


def make_report(
    name: str,
    protocol: str | None = None,
    *,
    methods: Sequence[str] = (),
    representations: Sequence[str] = (),
    seeds: Sequence[int] = (),
    split: str | None = None,
    params: Mapping[str, Any] | None = None,
    results: Path | str | None = None,
    folder: Path | str | None = None,
    plugins: Sequence[Path | str] = (),
    run_missing: bool = False,
    strict: bool = False,
    data_root: Path | str | None = None,
    cache: Path | str | None = None,
    device: str = "auto",
    precision: PrecisionChoice = "auto",
    weights: Path | str | None = None,
    unofficial_data: bool = False,
    progress: bool | Progress = False,
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
        results: folder of results; default $FSCIL_BENCH_RESULTS or ./results.
        folder: where the report's files go.
        plugins: Python files that bring further plug-ins.
        run_missing: make the runs that the report needs and that are not stored, as `run` would
            with the arguments that follow; the output names those that failed.
        strict: fail, once the files are written, if anything stored cannot be read.
        data_root: folder (or archive) in which data sets are looked for.
        cache: folder of caches; default $FSCIL_BENCH_CACHE or the system's.
        device: `auto`, `cpu`, `cuda`, `cuda:1` ...
        precision: of base training; `auto` is bf16 where the hardware computes it.
        weights: a file of pre-trained weights, or `none`; by default what the protocol wants.
        unofficial_data: use a copy of the data that is not the published one.
        progress: True shows progress on stderr.

    Raises:
        FscilError: an unknown report or parameter, no folder of results, or nothing to draw from.
        StoreError: with `strict`, a stored run or set of episodes cannot be read.
    """
    options = Options(
        data_roots=data_roots(_path(data_root)),
        device=device,
        precision=precision,
        weights=None if weights is None else str(weights),
        unofficial_data=unofficial_data,
    )
    registry = load_registry(tuple(Path(file) for file in plugins))
    if protocol is not None and protocol.endswith(".toml"):
        protocol = registry.add_protocol_file(Path(protocol))
    plugin = registry.get("report", name)
    store = Store(_path(results), _path(cache))
    if store.results.is_file():
        raise UsageError(f"{store.results}: a file, and no folder of results")
    named = tuple(expand_methods(methods, registry))
    selection = Selection(protocol, named, tuple(representations), tuple(seeds), split)
    made = plugin.value(parse_params(f"report {name!r}", plugin.value.Params, params or {}))
    failures: tuple[str, ...] = ()
    if run_missing:
        wanted = wanted_by(made, selection, registry)
        failures = make_missing(Workbench(store, registry, _shown(progress), options), wanted)
    runs, problems = store.runs()
    target = _path(folder) or store.report_folder(name, protocol)
    episodes, damaged = stored_episodes(store)
    warnings = tuple(str(problem) for problem in [*problems, *damaged])
    evaluation = Evaluation(store, registry)
    unread = {
        "unread_runs": _left_out(problems, store.results / "runs", protocol),
        "unread_episodes": _left_out(damaged, store.results / "episodes", protocol),
    }
    try:
        output: ReportOutput = made.build(
            ReportInput(selection, runs, target, registry, episodes, evaluation, **unread)
        )
    except FscilError as error:
        there = results is None or store.results.exists()
        notes = [] if there else [f"the folder {store.results} does not exist"]
        notes += ["runs that cannot be read:", *warnings] if warnings else []
        notes += ["runs that could not be made:", *failures] if failures else []
        if not notes:
            raise
        raise type(error)("\n".join([str(error), *notes])) from error
    told = "\n".join(output.warnings)
    untold = (warning for warning in warnings if warning not in told)
    output = replace(output, warnings=(*output.warnings, *untold), failures=failures)
    if strict:
        refuse_unread(output, results)
    return output


def _left_out(problems: Iterable[StoreError], root: Path, protocol: str | None) -> tuple[str, ...]:
    """Return what a report on a protocol says of records below `root` that cannot be read."""
    place = f"{root / protocol}{os.sep}" if protocol else ""
    return tuple(f"left out: {problem}" for problem in problems if str(problem).startswith(place))


def refuse_unread(output: ReportOutput, results: Path | str | None = None) -> None:
    """Refuse a report that was made beside stored results that cannot be read.

    Predictions that the report had no need of are looked at too.

    Raises:
        StoreError: there are some; all are named.
    """
    store = Store(_path(results))
    arrays = [run.damage for run in store.runs()[0]]
    arrays += [episodes.damage for episodes in stored_episodes(store)[0]]
    told = "\n".join(output.warnings)
    unread = [*output.warnings, *(damage for damage in arrays if damage and damage not in told)]
    if unread:
        listed = "\n  ".join(unread)
        raise StoreError(f"stored results that cannot be read:\n  {listed}")


def _workbench(
    results: Path | str | None,
    cache: Path | str | None,
    plugins: Sequence[Path | str],
    progress: bool | Progress,
    options: Options,
) -> Workbench:
    registry = load_registry(tuple(Path(file) for file in plugins))
    return Workbench(Store(_path(results), _path(cache)), registry, _shown(progress), options)


def _shown(progress: bool | Progress) -> Progress:
    if isinstance(progress, bool):
        return for_terminal() if progress else Silent()
    return progress


def _path(value: Path | str | None) -> Path | None:
    return None if value is None else Path(value)
