"""What work of a kind took before, from the records of stored runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from statistics import median

from fscil_bench.errors import StoreError
from fscil_bench.spec import RunSpec
from fscil_bench.store.files import work_folders
from fscil_bench.store.runs import RunRecord, Store, read_run

MOST_RECORDS = 10
"""Records that are read of a method and protocol: the median of more would be the same."""


class Times:
    """Tells seconds from the records of a store; None of what was never done there."""

    def __init__(self, store: Store) -> None:
        self._records = cache(lambda protocol: _records(store, protocol))

    def run(self, spec: RunSpec) -> float | None:
        """Return the seconds of one run: with the same parameters, or else of its method."""
        own = [record for record in self._of(spec) if record.spec.method == spec.method]
        same = [record for record in own if record.spec.params == spec.params]
        return _median(
            sum(session.learn_seconds + session.score_seconds for session in record.sessions)
            for record in same or own
        )

    def learnt(self, spec: RunSpec) -> float | None:
        """Return the seconds in which a method learns from base data."""
        own = [record for record in self._of(spec) if record.spec.method == spec.method]
        return _median(record.pretrain_seconds for record in own)

    def network(self, spec: RunSpec) -> float | None:
        """Return the seconds of base training, as many epochs as asked for at an epoch's time."""
        wanted = spec.representation
        per_epoch = {}
        for record in self._of(spec):
            brought, log = record.spec.representation, record.representation_log
            if (brought.name, brought.backbone) == (wanted.name, wanted.backbone):
                epochs, seconds = len(log.get("losses") or ()), log.get("seconds")
                if epochs and seconds:
                    per_epoch[brought.key] = seconds / epochs
        found = _median(per_epoch.values())
        return None if found is None else found * wanted.recipe.epochs

    def _of(self, spec: RunSpec) -> list[RunRecord]:
        return self._records(spec.protocol.name)


def _records(store: Store, protocol: str) -> list[RunRecord]:
    """Return some readable records of a protocol, a few for each method."""
    found: dict[str, list[RunRecord]] = {}
    for folder in work_folders(store.results / "runs"):
        own = found.setdefault(folder.parent.name, [])
        if folder.parent.parent.name == protocol and len(own) < MOST_RECORDS:
            try:
                own.append(read_run(folder).record)
            except StoreError:
                continue  # whoever needs it is told
    return [record for records in found.values() for record in records]


def _median(seconds: Iterable[float]) -> float | None:
    known = list(seconds)
    return median(known) if known else None
