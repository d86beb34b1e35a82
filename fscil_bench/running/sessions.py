"""Which samples belong to which session: shots, held-out slices, and what a method is handed."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from fscil_bench.data.reader import Dataset, DatasetIndex, ImageArray, read_file
from fscil_bench.errors import DataError, OtherClassesError, UsageError
from fscil_bench.method import Needs
from fscil_bench.protocol import LabelledSamples, Protocol, Queries, Session
from fscil_bench.seeding import Randomness
from fscil_bench.spec import digest_of
from fscil_bench.training.features import Features

SPLITS = ("canonical", "seeded")
OUTLIER = "outlier"
"""The split `outlier:Q`: shots from the fraction Q of a class that lies farthest from its mean."""

LISTED = "listed"
"""The split of a user's own lists."""


@dataclass(frozen=True)
class Assignment:
    """Indices into the training half: base samples, held-out base samples, shots by session.

    `shots[t]` holds the indices of session t + 1, class by class.
    """

    base: np.ndarray
    heldout: np.ndarray
    shots: tuple[np.ndarray, ...]


def check_dataset(protocol: Protocol, dataset: Dataset, what: str = "") -> None:
    """Refuse a data set that cannot carry the protocol; messages call it `what`, or by its name.

    Raises:
        DataError: too few classes, a class with fewer than `shot` training images, or a class
            without test images; class, number and need are named.
    """
    used, what = protocol.classes_used, what or f"data set {dataset.name!r}"
    if len(dataset.class_names) < used:
        raise OtherClassesError(
            f"protocol {protocol.name!r} needs {used} classes, {what} has "
            f"{len(dataset.class_names)}"
        )
    train = np.bincount(dataset.train.labels, minlength=used)
    test = np.bincount(dataset.test.labels, minlength=used)
    for label in range(used):
        name = dataset.class_names[label]
        if train[label] < protocol.shot:
            raise DataError(
                f"class {name!r} of {what} has {train[label]} training images, "
                f"protocol {protocol.name!r} needs {protocol.shot} (shot)"
            )
        if test[label] == 0:
            raise DataError(f"class {name!r} of {what} has no test images")


def hold_out(
    dataset: Dataset, protocol: Protocol, representation_seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Split base training samples into (trained on, held out), class by class.

    The recipe's `holdout` says which fraction. At least one sample of every class stays on each
    side when it is above 0.
    """
    fraction = protocol.recipe.holdout
    trained, heldout = [], []
    for label in protocol.session_classes(0):
        members = dataset.train.of_class(label)
        axes = ("heldout", representation_seed, dataset.class_keys[label])
        random = Randomness(axes).numpy()
        count = min(len(members) - 1, max(1, round(fraction * len(members)))) if fraction else 0
        chosen = random.permutation(len(members)) < count
        heldout.append(members[chosen])
        trained.append(members[~chosen])
    return np.concatenate(trained), np.concatenate(heldout)


def draw_shots(dataset: Dataset, protocol: Protocol, seed: int) -> tuple[np.ndarray, ...]:
    """Draw every session's shots for split `seeded`.

    The draw of a class depends on the seed and the class alone, so the shots of a class stay the
    same when way or class order change.
    """
    sessions = []
    for session in range(1, protocol.sessions + 1):
        chosen = []
        for label in protocol.session_classes(session):
            members = dataset.train.of_class(label)
            random = Randomness(("shots", seed, dataset.class_keys[label])).numpy()
            chosen.append(np.sort(random.choice(members, protocol.shot, replace=False)))
        sessions.append(np.concatenate(chosen))
    return tuple(sessions)


def outlier_fraction(split: str) -> float | None:
    """Return Q of split `outlier:Q`, or None for another split.

    Raises:
        UsageError: Q is not a number above 0 and at most 1.
    """
    name, colon, text = split.partition(":")
    if name != OUTLIER:
        return None
    try:
        fraction = float(text)
    except ValueError:
        fraction = 0.0
    if not colon or not 0 < fraction <= 1:
        raise UsageError(
            f"split {split!r}: write outlier:Q with 0 < Q <= 1, the fraction of a class that lies "
            "farthest from its mean (outlier:0.1)"
        )
    return fraction


def draw_outliers(
    dataset: Dataset, protocol: Protocol, features: np.ndarray, fraction: float, seed: int
) -> tuple[np.ndarray, ...]:
    """Draw every session's shots from the outliers of its classes.

    Args:
        dataset: whose training half is drawn from.
        protocol: the sessions.
        features: (n, D) of all training images, in the run's representation.
        fraction: Q, the part of a class's images, those with the largest Euclidean distance from
            the class mean, that shots are drawn from; never fewer than `shot` of them.
        seed: decides the draw.
    """
    sessions = []
    for session in range(1, protocol.sessions + 1):
        chosen = []
        for label in protocol.session_classes(session):
            members = dataset.train.of_class(label)
            rows = features[members].astype(np.float64)
            distances = np.linalg.norm(rows - rows.mean(axis=0), axis=1)
            count = max(protocol.shot, round(fraction * len(members)))
            farthest = members[np.argsort(-distances, kind="stable")[:count]]
            random = Randomness(("outliers", seed, dataset.class_keys[label])).numpy()
            chosen.append(np.sort(random.choice(farthest, protocol.shot, replace=False)))
        sessions.append(np.concatenate(chosen))
    return tuple(sessions)


@dataclass(frozen=True)
class CanonicalShots:
    """A published selection: for each session the classes with their samples, as written.

    `rows` are (session, class, sample numbers); `file` and, for each row, `lines` are where they
    were read.
    """

    file: Path
    rows: tuple[tuple[int, str, tuple[str, ...]], ...]
    lines: tuple[int, ...] = ()

    @property
    def digest(self) -> str:
        """Identify the selection."""
        return digest_of([list(map(str, row)) for row in self.rows])

    def where(self, key: str) -> str:
        """Return how messages call the rows of a class: its file and first line, if known."""
        keys = [row[1] for row in self.rows]
        line = self.lines[keys.index(key)] if self.lines and key in keys else None
        return f"{self.file}:{line}" if line else str(self.file)


def read_canonical(protocol: Protocol, folder: Path) -> CanonicalShots:
    """Read a protocol's rows from its table of canonical shots.

    The table is CSV with the columns protocol, session, class, samples (numbers separated by
    spaces).

    Raises:
        UsageError: the protocol publishes no shots, or the table is malformed (file:line).
    """
    if not protocol.canonical_shots:
        raise UsageError(
            f"protocol {protocol.name!r} has no published list of shots; use --split seeded"
        )
    path = folder / protocol.canonical_shots
    name = protocol.canonical_rows or protocol.name
    rows, lines = [], []
    try:
        text = io.StringIO(read_file(path).decode("utf-8-sig"), newline="")
        table = csv.DictReader(text)
        for row in table:
            if row.get("protocol") != name:
                continue
            try:
                rows.append((int(row["session"]), row["class"], tuple(row["samples"].split())))
            except (KeyError, TypeError, ValueError, AttributeError):
                where = f"{path}:{table.line_num}"
                raise UsageError(f"{where}: not session,class,samples: {row}") from None
            lines.append(table.line_num)
    except (DataError, csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a CSV in UTF-8: {error}") from error
    if not rows:
        raise UsageError(f"{path}: has no row for protocol {name!r}")
    return CanonicalShots(path, tuple(rows), tuple(lines))


def canonical_shots(
    table: CanonicalShots, protocol: Protocol, dataset: Dataset
) -> tuple[np.ndarray, ...]:
    """Return every session's shots from a published table, in its order.

    Classes and samples are found by the keys and numbers that the data set's reader gives them.

    Raises:
        UsageError: a class or sample does not exist, or a session lacks shots.
    """
    index = {key: label for label, key in enumerate(dataset.class_keys)}
    chosen: dict[int, np.ndarray] = {}
    for _, key, samples in table.rows:
        members = dataset.train.of_class(index.get(key, -1))
        place = {str(n): i for n, i in zip(dataset.train.numbers[members], members, strict=True)}
        absent = [sample for sample in samples if sample not in place]
        if key not in index or absent:
            raise _no_samples(table, key, absent or samples, dataset.name, dataset.unofficial)
        chosen[index[key]] = np.array([place[sample] for sample in samples])
    sessions = []
    for session in range(1, protocol.sessions + 1):
        for label in protocol.session_classes(session):
            have = len(chosen.get(label, ()))
            if have != protocol.shot:
                raise UsageError(
                    f"{table.where(dataset.class_keys[label])}: class "
                    f"{dataset.class_keys[label]!r} has {have} published shots, the protocol needs "
                    f"{protocol.shot}; use --split seeded"
                )
        sessions.append(np.concatenate([chosen[c] for c in protocol.session_classes(session)]))
    return tuple(sessions)


def refuse_absent_shots(
    table: CanonicalShots, name: str, index: DatasetIndex, unofficial: str | None
) -> None:
    """Refuse a published selection that is not in what a reader lists, before it is decoded.

    Raises:
        UsageError: a class or sample does not exist.
    """
    keys = index.class_keys or index.class_names
    there = {(keys[item.label], str(item.number)) for item in index.train}
    for _, key, samples in table.rows:
        absent = [sample for sample in samples if (key, sample) not in there]
        if absent:
            raise _no_samples(table, key, absent, name, unofficial)


def _no_samples(
    table: CanonicalShots, key: str, samples: Sequence[str], name: str, unofficial: str | None
) -> UsageError:
    copy = f" ({unofficial})" if unofficial else ""
    return UsageError(
        f"{table.where(key)}: class {key!r}, samples {' '.join(samples)}: not in data set "
        f"{name!r}{copy}; use --split seeded"
    )


def published_shots(protocol: Protocol, folder: Path, dataset: Dataset) -> str | None:
    """Say whether a protocol's published shots are in a data set; None where it has none.

    Raises:
        UsageError: they are not, though the copy is the published one.
    """
    if not protocol.canonical_shots:
        return None
    try:
        shots = canonical_shots(read_canonical(protocol, folder), protocol, dataset)
    except UsageError as error:
        if dataset.unofficial is None:
            raise
        return f"cannot be taken from this copy: {error}"
    return f"{sum(map(len, shots))}, each of the class that it is listed for"


def check_listed_sessions(
    folder: Path,
    rows: tuple[tuple[int, str, tuple[str, ...]], ...],
    protocol: Protocol,
    dataset: Dataset,
) -> None:
    """Refuse lists that put a class into another session than the protocol does.

    Raises:
        UsageError: they do; list, class and sessions are named.
    """
    place = {
        dataset.class_keys[label]: session
        for session in range(protocol.sessions + 1)
        for label in protocol.session_classes(session)
    }
    for session, key, _ in rows:
        if place.get(key) != session:
            there = f"in session {place[key]}" if key in place else "in none"
            raise UsageError(
                f"{folder / f'session_{session + 1}.txt'}: lists class {key!r} for session "
                f"{session}, protocol {protocol.name!r} has it {there}; choose --base-classes, "
                "--way or --class-order to fit the lists"
            )


class SessionMaker:
    """Builds what a method is handed, always as copies: sessions, and queries without labels."""

    def __init__(
        self,
        protocol: Protocol,
        dataset: Dataset,
        features: Mapping[str, Features],
        assignment: Assignment,
        needs: Needs,
        base_views: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.protocol, self.dataset, self.features = protocol, dataset, features
        self.assignment, self.needs, self.base_views = assignment, needs, base_views or {}

    def session(self, number: int) -> Session:
        """Return session `number` with its own samples and nothing of any other."""
        base = number == 0
        indices = self.assignment.base if base else self.assignment.shots[number - 1]
        samples = self.samples(indices)
        views = dict(samples.views)
        if base:
            views |= {view: _copied(array, indices) for view, array in self.base_views.items()}
        heldout = None
        if base and len(self.assignment.heldout):
            heldout = self.samples(self.assignment.heldout)
        return Session(
            labels=samples.labels,
            views=views,
            images=samples.images,
            index=number,
            class_ids=self.protocol.session_classes(number),
            classes_seen=self.protocol.classes_seen(number),
            heldout=heldout,
        )

    def queries(self, indices: np.ndarray) -> Queries:
        """Return test samples by index, without their labels."""
        views = {v: _copied(self.features[v].test, indices) for v in self.needs.features}
        images = self._images(self.dataset.test, indices)
        return Queries(views, images)

    def test_indices(self, number: int) -> np.ndarray:
        """Return the indices of the test samples of every class seen after session `number`."""
        return np.flatnonzero(self.dataset.test.labels < self.protocol.classes_seen(number))

    def samples(self, indices: np.ndarray) -> LabelledSamples:
        """Return training samples by index, with their global class ids."""
        labels = torch.from_numpy(self.dataset.train.labels[indices].copy())
        views = {v: _copied(self.features[v].train, indices) for v in self.needs.features}
        images = self._images(self.dataset.train, indices)
        return LabelledSamples(labels, views, images)

    def _images(self, half: ImageArray, indices: np.ndarray) -> torch.Tensor | None:
        if not self.needs.images:
            return None
        return half.images.squares(indices, self.protocol.images.stored)


def _copied(array: np.ndarray, indices: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array[indices]))
