"""From stored runs to table rows: what may be averaged, over which axes, and under which name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.plugins.registry import Registry
from fscil_bench.request import Selection
from fscil_bench.spec import RunSpec
from fscil_bench.store.runs import StoredRun

from ._labels import row_labels


@dataclass(frozen=True)
class Row:
    """Runs that one table row averages: alike in everything but the axes of chance.

    Attributes:
        runs: of one code version, one for each (representation_seed, seed), in that order.
        label: the row's name, unique among the rows it was grouped with.
        older: how many runs were left out because earlier code made them.
        repeated: how many were left out because a newer run has the same seeds.
    """

    runs: tuple[StoredRun, ...]
    label: str
    older: int = 0
    repeated: int = 0

    @property
    def spec(self) -> RunSpec:
        """The specification of the first run; the others differ from it in their seeds alone."""
        return self.runs[0].spec

    @property
    def axes(self) -> set[tuple[int, int]]:
        """The pairs (representation_seed, seed) that the row has."""
        return {_axes(run) for run in self.runs}

    def interval(self, value: Callable[[StoredRun], float]) -> Interval:
        """Return mean and 95 % interval of a run's value over the row's runs."""
        return mean_interval([value(run) for run in self.runs])


def chosen_runs(runs: Iterable[StoredRun], selection: Selection) -> list[StoredRun]:
    """Return the runs that a selection asks for; what it leaves open is not filtered."""
    return [run for run in runs if asked_for(run.spec, selection)]


def asked_for(spec: RunSpec, selection: Selection) -> bool:
    """Return whether a selection asks for runs of a specification."""
    return (
        selection.protocol in (None, spec.protocol.name)
        and (not selection.methods or spec.method in selection.methods)
        and (not selection.representations or spec.representation.name in selection.representations)
        and (not selection.seeds or spec.seed in selection.seeds)
        and selection.split in (None, spec.split)
    )


def group_rows(runs: Iterable[StoredRun], registry: Registry) -> list[Row]:
    """Return the table rows of some runs, in order of their first appearance.

    Runs are averaged only if nothing but their seeds differs; of several code versions the one
    with the newest run stays, and of several runs with the same seeds the newest.
    """
    groups: dict[str, list[StoredRun]] = {}
    for run in sorted(runs, key=lambda run: run.record.created):
        groups.setdefault(run.spec.row, []).append(run)
    labels = row_labels([group[-1].spec for group in groups.values()], registry)
    return [_row(group, label) for group, label in zip(groups.values(), labels, strict=True)]


def relabelled(rows: Sequence[Row], registry: Registry) -> list[Row]:
    """Return some of the rows under the shortest labels that tell just these apart."""
    labels = row_labels([row.spec for row in rows], registry)
    return [replace(row, label=label) for row, label in zip(rows, labels, strict=True)]


def axes_text(row: Row) -> str:
    """Say which axes of chance a row's runs vary, and how often."""
    count = len(row.runs)
    representation_seeds = sorted({pair[0] for pair in row.axes})
    seeds = sorted({pair[1] for pair in row.axes})
    if count == 1:
        return f"n = 1 (seed {seeds[0]}, representation_seed {representation_seeds[0]})"
    noise = (
        "method noise; the shots are fixed"
        if row.spec.split == "canonical"
        else "shots and method noise"
    )
    if len(representation_seeds) == 1:
        return f"n = {count} over seed ({noise}), representation_seed {representation_seeds[0]}"
    if len(seeds) == 1:
        return f"n = {count} over representation_seed, seed {seeds[0]}"
    text = (
        f"n = {count} over seed ({len(seeds)} values; {noise}) "
        f"and representation_seed ({len(representation_seeds)} values)"
    )
    if min(len(seeds), len(representation_seeds)) < count:
        text += ", taken as independent although some runs share one, so that ± may be too narrow"
    return text


def _row(group: Sequence[StoredRun], label: str) -> Row:
    """Return the row of runs that are alike but for seeds and code; `group` is oldest first."""
    version = group[-1].spec.version
    current = [run for run in group if run.spec.version == version]
    # Later entries replace earlier ones, and `group` is sorted by time: the newest stays.
    newest = {_axes(run): run for run in current}
    return Row(
        runs=tuple(newest[pair] for pair in sorted(newest)),
        label=label,
        older=len(group) - len(current),
        repeated=len(current) - len(newest),
    )


def _axes(run: StoredRun) -> tuple[int, int]:
    return run.spec.representation.seed, run.spec.seed
