from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset, ImageArray
from fscil_bench.errors import DataError, UsageError
from fscil_bench.protocol import Protocol, load_protocol
from fscil_bench.running.sessions import (
    canonical_shots,
    check_dataset,
    draw_outliers,
    draw_shots,
    hold_out,
    outlier_fraction,
    read_canonical,
)

TOY = Path(__file__).parents[1] / "toy"


@pytest.fixture
def protocol() -> Protocol:
    return load_protocol(TOY / "toy.toml")


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(10), 12))


def dataset(labels: np.ndarray, test_labels: np.ndarray) -> Dataset:
    def half(values: np.ndarray) -> ImageArray:
        images = Images.from_block(np.zeros((len(values), 16, 16, 3), np.uint8))
        numbers = np.array([int(np.sum(values[:i] == c)) for i, c in enumerate(values)])
        return ImageArray(images, values, numbers, tuple(map(str, range(len(values)))))

    names = tuple(f"toy {c}" for c in range(10))
    return Dataset("toy", names, names, half(labels), half(test_labels), "f")


def test_seeded_shots_are_of_the_right_classes(protocol: Protocol, labels: np.ndarray) -> None:
    data = dataset(labels, np.arange(10))
    shots = draw_shots(data, protocol, seed=0)
    expected = [[4] * 3 + [5] * 3, [6] * 3 + [7] * 3, [8] * 3 + [9] * 3]
    assert [sorted(labels[indices]) for indices in shots] == expected
    everything = np.concatenate(shots)
    assert len(set(everything)) == len(everything)
    wide = protocol.override(way=3, sessions=2)
    for terms, seed, same in ((protocol, 0, True), (wide, 0, True), (protocol, 1, False)):
        drawn = np.concatenate(draw_shots(data, terms, seed))
        assert np.array_equal(drawn, everything) == same, "the seed decides, the way does not"


def test_held_out_samples_are_of_every_base_class(protocol: Protocol, labels: np.ndarray) -> None:
    whole = dataset(labels, np.arange(10))
    trained, heldout = hold_out(whole, protocol.override(holdout=0.25), representation_seed=0)
    assert np.array_equal(np.bincount(labels[heldout], minlength=10), [3] * 4 + [0] * 6)
    assert np.array_equal(np.bincount(labels[trained], minlength=10), [9] * 4 + [0] * 6)
    assert not set(trained) & set(heldout)
    everything, nothing = hold_out(whole, protocol, representation_seed=0)
    assert (len(everything), len(nothing)) == (48, 0)


def test_canonical_shots_are_the_published_ones(protocol: Protocol, labels: np.ndarray) -> None:
    table = read_canonical(protocol, TOY)
    shots = canonical_shots(table, protocol, dataset(labels, np.arange(10)))
    members = np.flatnonzero(labels == 6)
    assert np.array_equal(shots[1][:3], members[[11, 10, 9]]), "in the published order"
    with pytest.raises(UsageError, match="no published list of shots; use --split seeded"):
        read_canonical(protocol.override(canonical_shots=None), TOY)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("toy,1,toy 4,0 1 99", "'toy 4', samples 99: not in data set"),
        ("toy,1,toy four,0 1 2", "'toy four'.*not in data set"),
        ("toy,1,toy 4,0 1", r"shots.csv:2: class 'toy 4' has 2 published shots, .* needs 3"),
        ("toy,1,toy 4,0 1 2\nother,1,caf\udce9,1", "cannot be read as a CSV in UTF-8"),
        ("toy," + "1" * 5000 + ",toy 4,0 1 2", "shots.csv:2: not session,class,samples"),
        ("toy,one,toy 4,0", "shots.csv:2"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    protocol: Protocol, labels: np.ndarray, tmp_path: Path, row: str, expected: str
) -> None:
    text = (TOY / "toy_shots.csv").read_text().replace("toy,1,toy 4,0 1 2", row)
    (tmp_path / "toy_shots.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=expected):
        table = read_canonical(protocol, tmp_path)
        canonical_shots(table, protocol, dataset(labels, np.arange(10)))


def test_a_class_with_too_few_images_is_named(protocol: Protocol, labels: np.ndarray) -> None:
    few = labels[(labels != 7) | (np.cumsum(labels == 7) <= 2)]
    with pytest.raises(DataError, match=r"'toy 7'.* has 2 training images.* needs 3"):
        check_dataset(protocol, dataset(few, np.arange(10)))
    with pytest.raises(DataError, match=r"'toy 9'.*no test images"):
        check_dataset(protocol, dataset(labels, np.arange(9)))


def test_outliers_lie_farthest_from_the_class_mean(protocol: Protocol, labels: np.ndarray) -> None:
    data = dataset(labels, np.arange(10))
    # Sample i of a class lies at distance i from its mean: pairs on either side of it.
    features = np.zeros((len(labels), 2))
    for label in range(10):
        members = data.train.of_class(label)
        features[members, 0] = label * 100 + np.repeat(np.arange(1, 7), 2) * np.tile([1, -1], 6)
    drawn = {
        seed: draw_outliers(data, protocol, features, fraction=1 / 3, seed=seed)
        for seed in range(8)
    }
    distances = np.abs(features[:, 0] - labels * 100)
    for shots in drawn.values():
        for session, indices in enumerate(shots, start=1):
            assert set(labels[indices]) == set(protocol.session_classes(session))
            assert distances[indices].min() >= 5, "4 of 12 lie at distances 5 and 6"
    assert len({tuple(shots[0]) for shots in drawn.values()}) > 1, "the seed draws"
    fewest = draw_outliers(data, protocol, features, fraction=0.01, seed=0)
    assert all(np.bincount(labels[s])[list(set(labels[s]))].min() == 3 for s in fewest)
    assert distances[np.concatenate(fewest)].min() >= 5


def test_outlier_splits_are_read() -> None:
    fractions = [outlier_fraction(split) for split in ("outlier:0.25", "outlier:1", "seeded")]
    assert fractions == [0.25, 1.0, None]
    for split in ("outlier", "outlier:", "outlier:0", "outlier:2", "outlier:nan"):
        with pytest.raises(UsageError, match=r"outlier:Q with 0 < Q <= 1"):
            outlier_fraction(split)
