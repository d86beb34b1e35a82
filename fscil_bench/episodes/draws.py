"""Ordinary few-shot classification: what its episodes are made of.

The field draws an episode's shots and queries alike from all images of a class (Vinyals et al.,
"Matching Networks for One Shot Learning", NeurIPS 2016). Here, as everywhere in this suite, no
label of a test image reaches a method: shots come from the training half and queries from the test
half of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from fscil_bench.data.reader import Dataset
from fscil_bench.errors import DataError, UsageError
from fscil_bench.protocol import Protocol, Queries, Session
from fscil_bench.request import Design
from fscil_bench.running.sessions import SessionMaker
from fscil_bench.seeding import Randomness


@dataclass(frozen=True)
class Episode:
    """One draw.

    Attributes:
        classes: (way,) global ids, in the order of the score columns.
        shots: (way, shot) indices into the training half, class by class.
        queries: (way · queries,) indices into the test half, shuffled.
    """

    classes: np.ndarray
    shots: np.ndarray
    queries: np.ndarray


def check_design(design: Design, protocol: Protocol, dataset: Dataset) -> None:
    """Refuse episodes that cannot be drawn.

    Raises:
        UsageError: the protocol has fewer new classes than an episode needs.
        DataError: a new class has fewer images than an episode needs.
    """
    new = protocol.classes_used - protocol.base_classes
    if new < design.way:
        raise UsageError(
            f"protocol {protocol.name!r} has {new} new classes, an episode needs {design.way} "
            f"(way); choose --way {new} or fewer"
            if new > 1
            else f"protocol {protocol.name!r} has {new} new classes, an episode needs at least 2; "
            "choose a protocol with more"
        )
    for half, array, need, option in (
        ("training", dataset.train, design.shot, "shot"),
        ("test", dataset.test, design.queries or 1, "queries"),
    ):
        counts = np.bincount(array.labels, minlength=protocol.classes_used)
        for label in range(protocol.base_classes, protocol.classes_used):
            if counts[label] < need:
                raise DataError(
                    f"class {dataset.class_names[label]!r} of data set {dataset.name!r} has "
                    f"{counts[label]} {half} images, an episode needs {need} ({option}); choose "
                    f"--{option} {counts[label]} or fewer"
                )


def draw_episodes(
    dataset: Dataset, protocol: Protocol, design: Design, seed: int
) -> Iterator[Episode]:
    """Yield the episodes of a seed, the same for every method.

    An episode depends on the seed and its number alone: of two designs, the one with fewer ways,
    shots or queries has a part of the other's, so that 1-shot and 5-shot are asked the same
    queries.
    """
    new = np.arange(protocol.base_classes, protocol.classes_used)
    train, test = (
        {label: half.of_class(label) for label in new.tolist()}
        for half in (dataset.train, dataset.test)
    )
    for number in range(design.episodes):
        axes = Randomness(("episodes", seed, number))
        classes = axes.numpy("classes").permutation(new)[: design.way]
        shots, queries = [], []
        for place, label in enumerate(classes.tolist()):
            random = axes.numpy("images", place)
            shots.append(random.permutation(train[label])[: design.shot])
            queries.append(random.permutation(test[label])[: design.queries])
        shuffled = axes.numpy("order").permutation(np.concatenate(queries))
        yield Episode(classes, np.stack(shots), shuffled)


def hand_out(maker: SessionMaker, episode: Episode, number: int) -> tuple[Session, Queries]:
    """Return what a method is handed of an episode: labelled shots, and queries without labels.

    The classes come as those of a first session would, with ids from the number of base classes
    on, so that a method cannot tell them from one another by what it has seen in other episodes.
    """
    way, shot = episode.shots.shape
    first = maker.protocol.base_classes
    ids = torch.arange(first, first + way)
    samples = maker.samples(episode.shots.ravel())
    shots = Session(
        labels=ids.repeat_interleave(shot),
        views=samples.views,
        images=samples.images,
        index=number + 1,
        class_ids=tuple(ids.tolist()),
        classes_seen=first + way,
    )
    return shots, maker.queries(episode.queries)
