"""The pseudo-incremental split: base training data cut into a protocol of its own.

Parameters are chosen there: some base classes play the new ones, in front of a backbone that was
trained without them, and a slice of every class's training images plays the test images. Neither
a new class nor a test image of the protocol itself is looked at.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fscil_bench.data.reader import Dataset
from fscil_bench.errors import UsageError
from fscil_bench.protocol import Protocol
from fscil_bench.seeding import Randomness
from fscil_bench.spec import digest_of

SUFFIX = "-pseudo"
TEST_FRACTION = 0.2
"""Fraction of every class's training images that play the test images."""


def pseudo_incremental(protocol: Protocol) -> Protocol:
    """Return the protocol on which parameters for `protocol` are chosen.

    The last base classes, in class order, play the new ones: the same share of all classes as in
    `protocol`, in sessions of the same way (the mean of different ones; half of the base classes,
    if it is more) and shot. Recipe, backbone and images are unchanged.

    Raises:
        UsageError: there are too few base classes, or it is such a protocol already.
    """
    if protocol.test_from_train is not None:
        raise UsageError(f"protocol {protocol.name!r} is a pseudo-incremental one already")
    share = 1 - protocol.base_classes / protocol.classes_used
    base = protocol.base_classes
    if base < 4 or not protocol.sessions:
        raise UsageError(
            f"protocol {protocol.name!r} has {base} base classes and {protocol.sessions} sessions "
            f"of {protocol.way_text} classes: too few to let some of the base classes play new ones"
        )
    way = min(round(sum(protocol.ways) / protocol.sessions), base // 2)
    sessions = min(max(1, round(share * base / way)), (base - 2) // way)
    return protocol.override(
        name=protocol.name + SUFFIX,
        title=f"{protocol.title}: pseudo-incremental split of the base classes",
        base_classes=base - sessions * way,
        way=way,
        sessions=sessions,
        split="seeded",
        canonical_shots=None,
        canonical_rows=None,
        train_images=None,
        test_from_train=TEST_FRACTION,
    )


def base_training_data(dataset: Dataset, protocol: Protocol) -> Dataset:
    """Return what a pseudo-incremental protocol may see of a data set in the protocol's order.

    Its test half is `test_from_train` of the training images of every class used, drawn by class
    alone; the training half keeps the others, of the classes used alone.
    """
    fraction, train = protocol.test_from_train or 0.0, dataset.train
    tested, kept = [], []
    for label in range(protocol.classes_used):
        members = train.of_class(label)
        random = Randomness(("pseudo test images", dataset.class_keys[label])).numpy()
        count = min(len(members) - 1, max(1, round(fraction * len(members))))
        chosen = random.permutation(len(members)) < count
        tested.append(members[chosen])
        kept.append(members[~chosen])
    halves = [train.part(np.sort(np.concatenate(chosen))) for chosen in (kept, tested)]
    content = [dataset.fingerprint, protocol.class_order, *(half.keys for half in halves)]
    return replace(dataset, train=halves[0], test=halves[1], fingerprint=digest_of(content))
