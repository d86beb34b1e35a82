from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from fscil_bench.reporting.figures import figure_style
from fscil_bench.reports.ldc.divergence import ClassFeatures, finite_class
from fscil_bench.reports.ldc.tsne.embedding import (
    Embedding,
    embedded,
    embedding_figure,
    fitted_perplexity,
)

DIM = 4


def features_of(class_id: int, centre: float, shift: float, images: int = 20) -> ClassFeatures:
    """Return a class whose generated features lie `shift` off, and half of it after one step."""
    rng = np.random.default_rng(class_id)

    def draw(mean: float) -> np.ndarray:
        samples: np.ndarray = mean + rng.standard_normal((images, DIM))
        return samples

    generated = [draw(centre + shift), draw(centre + shift / 2)]
    return finite_class(class_id, draw(centre), generated)


@pytest.fixture(scope="module")
def embedding() -> Embedding:
    """Return two classes far apart, of two steps each."""
    return embedded([features_of(3, 0, 3.0), features_of(5, 40, 3.0)], 8, 30, seed=0)


def test_samples_that_are_not_finite_are_skipped() -> None:
    real = np.ones((6, DIM))
    real[0, 1], real[4, 0] = np.nan, np.inf

    found = finite_class(2, real, [np.zeros((5, DIM))])

    assert (len(found.real), len(found.generated[0]), found.skipped) == (4, 5, 2)
    assert found.usable
    real[1] = np.nan
    assert not finite_class(2, real, [np.zeros((5, DIM))]).usable


def test_the_perplexity_fits_the_samples() -> None:
    assert [fitted_perplexity(30, count) for count in (780, 61, 3)] == [30, 20, 1]


def places_of(embedding: Embedding, **meant: Any) -> np.ndarray:
    """Return the places (n, 2) of the points of which that is true; without `step`, real ones."""
    points = embedding.points
    step = meant.pop("step", None)
    kept = points["step"].isna() if step is None else (points["step"] == step).fillna(False)
    for name, value in meant.items():
        kept &= points[name] == value
    places: np.ndarray = points.loc[kept, ["x", "y"]].to_numpy()
    return places


def test_everything_is_in_one_embedding(embedding: Embedding) -> None:
    points = embedding.points

    counts = points.groupby(["class_id", "kind", "step", "is_mean"], dropna=False).size()

    kinds = [("generated", 0), ("generated", 1), ("real", None)]
    assert counts.tolist() == [8, 1] * len(kinds) * 2
    assert len(points) == 2 * (3 * 8 + 3)
    assert set(points.loc[points["kind"] == "real", "step"].isna()) == {True}
    assert (embedding.perplexity, embedding.lowered) == (53 / 3, True)


def test_classes_stay_apart_and_means_among_their_samples(embedding: Embedding) -> None:
    def centre(class_id: int, mean: int) -> np.ndarray:
        places = places_of(embedding, class_id=class_id, is_mean=mean).mean(axis=0)
        return np.asarray(places)

    near, far = centre(3, 1) - centre(3, 0), centre(3, 0) - centre(5, 0)

    assert np.linalg.norm(near) < 0.5 * np.linalg.norm(far)


def test_the_same_seed_gives_the_same_places(embedding: Embedding) -> None:
    again = embedded([features_of(3, 0, 3.0), features_of(5, 40, 3.0)], 8, 30, seed=0)

    pd.testing.assert_frame_equal(embedding.points, again.points, check_exact=True)


def test_no_two_steps_share_a_sample() -> None:
    # One sample after two steps that change nothing would be two points in one place.
    same = np.random.default_rng(0).standard_normal((20, DIM))
    found = embedded([finite_class(0, same + 9, [same, same])], 25, 5, seed=0)

    places = np.concatenate([places_of(found, step=step, is_mean=0) for step in (0, 1)])

    assert len(places) == 20
    assert len(np.unique(places.round(6), axis=0)) == 20


def test_features_all_alike_lie_in_one_place() -> None:
    same = np.ones((8, DIM))

    found = embedded([finite_class(0, same, [same])], 8, 30, seed=0)

    assert found.constant == DIM
    assert (found.points[["x", "y"]] == 0).all(axis=None)


def test_panels_share_real_points_and_have_their_own_step(embedding: Embedding) -> None:
    with figure_style():
        figure = embedding_figure(embedding.points, {3: "_cat $a", 5: "dog"}, ["before", "after"])
        before, after = (
            [np.asarray(drawn.get_offsets()) for drawn in axes.collections] for axes in figure.axes
        )

    assert [axes.get_title() for axes in figure.axes] == ["before", "after"]
    for class_id, step, mean in product((3, 5), (None, 0, 1), (0, 1)):
        places = places_of(embedding, class_id=class_id, step=step, is_mean=mean)
        shown = [any(np.array_equal(places, drawn) for drawn in panel) for panel in (before, after)]
        assert shown == [step in (None, 0), step in (None, 1)]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:2] == ["_cat $a", "dog"]


def test_real_is_filled_and_generated_outlined(embedding: Embedding) -> None:
    with figure_style():
        axes = embedding_figure(embedding.points, {3: "a", 5: "b"}, ["before", "after"]).axes[0]

    filled = [len(drawn.get_facecolor()) > 0 for drawn in axes.collections]
    # Samples of both classes, then means; real before generated.
    assert filled == [True, False, True, False, True, False, True, False]
    edges = [to_rgb(drawn.get_edgecolor()[0]) for drawn in axes.collections]
    assert edges[4] == edges[6] == to_rgb("black")
    assert edges[1] != edges[3]
