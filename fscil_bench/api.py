"""The Python interface, with the same power as the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fscil_bench.compute import PrecisionChoice
from fscil_bench.errors import FscilError
from fscil_bench.params import parse_params
from fscil_bench.progress import Progress, Silent, for_terminal
from fscil_bench.registry import load_registry
from fscil_bench.report import ReportInput, ReportOutput, Selection
from fscil_bench.store import Store, StoredRun, data_roots
from fscil_bench.workbench import Options, RunRequest, Workbench

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
    shown: Progress = progress if not isinstance(progress, bool) else Silent()
    if progress is True:
        shown = for_terminal()
    bench = Workbench(
        Store(_path(results), _path(cache)),
        load_registry(tuple(Path(file) for file in plugins)),
        shown,
        Options(
            data_roots=data_roots(_path(data_root)),
            device=device,
            precision=precision,
            weights=None if weights is None else str(weights),
            unofficial_data=unofficial_data,
            skip_broken=skip_broken,
        ),
    )
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
    )
    return bench.run(bench.plan(request), force, artifacts)


def load_runs(results: Path | str | None = None) -> pd.DataFrame:
    """Return all stored runs as a frame, one row a run; accuracies are fractions.

    Damaged runs are left out with a warning.
    """
    return Store(_path(results)).frame()


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
) -> ReportOutput:
    """Draw a report from stored runs; its files go to `folder` or below the results.

    `protocol` is a name, or the TOML file of one.

    Raises:
        FscilError: an unknown report or parameter, or nothing to draw from.
    """
    registry = load_registry(tuple(Path(file) for file in plugins))
    if protocol is not None and protocol.endswith(".toml"):
        protocol = registry.protocol(protocol)[0].name
    plugin = registry.get("report", name)
    store = Store(_path(results))
    selection = Selection(protocol, tuple(methods), tuple(representations), tuple(seeds), split)
    runs, problems = store.runs()
    made = plugin.value(parse_params(f"report {name!r}", plugin.value.Params, params or {}))
    target = _path(folder) or store.report_folder(name, protocol)
    warnings = tuple(str(problem) for problem in problems)
    try:
        output: ReportOutput = made.build(ReportInput(selection, runs, target, registry))
    except FscilError as error:
        if not warnings:
            raise
        raise type(error)(
            "\n".join([str(error), "runs that cannot be read:", *warnings])
        ) from error
    return ReportOutput(output.text, output.files, output.missing, (*output.warnings, *warnings))


def _path(value: Path | str | None) -> Path | None:
    return None if value is None else Path(value)
