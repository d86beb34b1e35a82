"""From stored few-shot episodes to table rows, and their differences episode by episode."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from fscil_bench.episodes.store import StoredEpisodes
from fscil_bench.errors import UsageError, nearest
from fscil_bench.metrics import Interval, mean_interval
from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.labels import row_labels
from fscil_bench.reporting.statistics import paired_interval
from fscil_bench.spec import RunSpec, digest_of


class Setting(NamedTuple):
    """A column of the table: classes of an episode, and labelled images of each."""

    way: int
    shot: int

    @property
    def key(self) -> str:
        """Names the column in CSV."""
        return f"way{self.way}_shot{self.shot}"

    @property
    def title(self) -> str:
        """The setting as the field names it."""
        return f"{self.way}-way {self.shot}-shot"


@dataclass(frozen=True)
class EpisodeRow:
    """Episodes that one table row shows: of one method, on one trained representation.

    Attributes:
        label: the row's name, unique among the rows it was grouped with.
        stored: of one code version, one for each setting and seed, in that order.
        older: how many were left out because earlier code made them.
    """

    label: str
    stored: tuple[StoredEpisodes, ...]
    older: int = 0

    @property
    def spec(self) -> RunSpec:
        """The run up to the base session; those of the others differ from it in the seed alone."""
        return self.stored[0].spec.run

    @property
    def queries(self) -> int | None:
        """Queries of each class."""
        return self.stored[0].spec.design.queries

    @property
    def seeds(self) -> list[int]:
        """Those that drew the episodes."""
        return sorted({each.spec.run.seed for each in self.stored})

    @property
    def draws(self) -> str:
        """Identify what decides, with a seed, which images an episode has."""
        spec, protocol = self.spec, self.spec.protocol
        shape = [protocol.class_order, protocol.base_classes, protocol.classes_used]
        return digest_of([spec.representation.data_fingerprint, *shape, self.queries])

    @cached_property
    def accuracies(self) -> dict[Setting, dict[tuple[int, int], float]]:
        """Accuracy in percent by setting, then by (seed, number of the episode)."""
        found: dict[Setting, dict[tuple[int, int], float]] = {}
        for each in self.stored:
            own = found.setdefault(setting_of(each), {})
            for number, value in enumerate(each.accuracies):
                own[each.spec.run.seed, number] = 100 * float(value)
        return found

    def interval(self, setting: Setting) -> Interval:
        """Return mean accuracy in percent with its 95 % interval over the episodes."""
        return mean_interval(list(self.accuracies.get(setting, {}).values()))

    def minus(self, other: EpisodeRow, setting: Setting) -> Interval:
        """Return the mean difference to `other` over the same episodes, in percentage points."""
        mine, its = (row.accuracies.get(setting, {}) for row in (self, other))
        return paired_interval(mine, its if self.draws == other.draws else {})


def setting_of(stored: StoredEpisodes) -> Setting:
    """Return the setting of some episodes."""
    return Setting(stored.spec.design.way, stored.spec.design.shot)


def episode_rows(stored: Iterable[StoredEpisodes], registry: Registry) -> list[EpisodeRow]:
    """Return the table rows of some episodes, in order of their first appearance.

    Only seeds are taken together, whose episodes are other draws. Of several code versions the
    one with the newest episodes stays, and of several numbers of episodes the largest, which has
    the smaller ones in it.
    """
    groups: dict[tuple[str, int, int | None], list[StoredEpisodes]] = {}
    for each in sorted(stored, key=lambda each: each.record.created):
        run = each.spec.run
        key = (run.row, run.representation.seed, each.spec.design.queries)
        groups.setdefault(key, []).append(each)
    specs = {row: group[-1].spec.run for (row, _, _), group in groups.items()}
    names = dict(zip(specs, row_labels(list(specs.values()), registry), strict=True))
    seeds, counts = ({key[place] for key in groups} for place in (1, 2))
    rows = []
    for (row, seed, queries), group in groups.items():
        label = names[row]
        label += f", representation seed {seed}" if len(seeds) > 1 else ""
        label += f", {queries} queries" if len(counts) > 1 else ""
        version = group[-1].spec.version
        current = [each for each in group if each.spec.version == version]
        by_number = sorted(current, key=lambda each: each.spec.design.episodes)
        largest = {(*setting_of(each), each.spec.run.seed): each for each in by_number}
        kept = tuple(largest[key] for key in sorted(largest))
        rows.append(EpisodeRow(label, kept, len(group) - len(current)))
    return rows


def reference_row(row: EpisodeRow, rows: Sequence[EpisodeRow], name: str) -> EpisodeRow | None:
    """Return the row that `row` is compared with: the one of label or method `name`.

    It has the same representation and representation seed where several have the name. None if
    that is `row` itself, or if no row of the name can be compared.

    Raises:
        UsageError: no row has the name, or several are equally fit.
    """
    named = [other for other in rows if name in (other.label, other.spec.method)]
    if not named:
        known = sorted({label for r in rows for label in (r.label, r.spec.method)})
        raise UsageError(f"against = {name!r}: no row is called that; {nearest(name, known)}")
    trained = row.spec.representation
    fit = [other for other in named if other.draws == row.draws]
    alike = [other for other in fit if other.spec.representation.key == trained.key]
    fit = alike or fit
    if row in fit:
        return None
    if len(fit) > 1:
        labels = ", ".join(repr(other.label) for other in fit)
        raise UsageError(f"against = {name!r} fits several rows; name one of them: {labels}")
    return fit[0] if fit else None
