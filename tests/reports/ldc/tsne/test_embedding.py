from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fscil_bench.reports._embedding import (
    ClassFeatures,
    Embedding,
    class_divergences,
    embedded,
    finite_class,
    fitted_perplexity,
)
from fscil_bench.reports._embedding_figure import embedding_figure, embedding_lines
from fscil_bench.reports._figures import figure_style

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


def test_the_step_that_comes_closer_has_the_lower_kl() -> None:
    (before, after), floor = class_divergences(features_of(0, 5.0, 2.0, images=200))

    # Of N(m + s, I) against N(m, I) on every axis and direction, ½·s² on average over them.
    assert before > after > floor > 0
    assert floor < 0.1
    assert before / after == pytest.approx(4, rel=0.3)


def test_samples_that_are_not_finite_are_skipped() -> None:
    real = np.ones((6, DIM))
    real[0, 1], real[4, 0] = np.nan, np.inf

    found = finite_class(2, real, [np.zeros((5, DIM))])

    assert (len(found.real), len(found.generated[0]), found.skipped) == (4, 5, 2)
    assert found.usable
    real[1] = np.nan
    assert not finite_class(2, real, [np.zeros((5, DIM))]).usable


def test_the_perplexity_fits_the_samples() -> None:
    assert fitted_perplexity(30, 780) == 30
    assert fitted_perplexity(30, 61) == 20
    assert fitted_perplexity(30, 3) == 1


def test_everything_is_in_one_embedding(embedding: Embedding) -> None:
    kinds = [(p.class_id, p.step, p.mean, len(p.places)) for p in embedding.points]

    assert kinds == [
        (class_id, step, mean, 1 if mean else 8)
        for class_id in (3, 5)
        for step in (None, 0, 1)
        for mean in (False, True)
    ]
    assert embedding.samples == 2 * (3 * 8 + 3)
    assert (embedding.perplexity, embedding.lowered) == (53 / 3, True)


def test_classes_stay_apart_and_means_among_their_samples(embedding: Embedding) -> None:
    centres = {
        (p.class_id, p.mean): p.places.mean(axis=0) for p in embedding.points if p.step is None
    }

    def distance(one: tuple[int, bool], two: tuple[int, bool]) -> float:
        return float(np.linalg.norm(centres[one] - centres[two]))

    assert distance((3, True), (3, False)) < 0.5 * distance((3, False), (5, False))


def test_the_same_seed_gives_the_same_places(embedding: Embedding) -> None:
    again = embedded([features_of(3, 0, 3.0), features_of(5, 40, 3.0)], 8, 30, seed=0)

    for one, two in zip(embedding.points, again.points, strict=True):
        np.testing.assert_array_equal(one.places, two.places)


def test_no_two_steps_share_a_sample() -> None:
    # One sample after two steps that change nothing would be two points in one place.
    same = np.random.default_rng(0).standard_normal((20, DIM))
    found = embedded([finite_class(0, same + 9, [same, same])], 25, 5, seed=0)

    places = np.concatenate([p.places for p in found.points if p.step is not None and not p.mean])

    assert len(places) == 20
    assert len(np.unique(places.round(6), axis=0)) == 20


def test_constant_dimensions_are_left_out_and_counted() -> None:
    own = features_of(0, 1.0, 1.0)
    padded = finite_class(
        0,
        np.pad(own.real, ((0, 0), (0, 3))),
        [np.pad(each, ((0, 0), (0, 3))) for each in own.generated],
    )

    plain, found = (embedded([each], 8, 5, seed=0) for each in (own, padded))

    assert (plain.constant, found.constant) == (0, 3)
    for one, two in zip(plain.points, found.points, strict=True):
        np.testing.assert_array_equal(one.places, two.places)


def test_features_all_alike_lie_in_one_place() -> None:
    same = np.ones((8, DIM))

    found = embedded([finite_class(0, same, [same])], 8, 30, seed=0)

    assert found.constant == DIM
    assert all((p.places == 0).all() for p in found.points)


def test_csv_holds_every_point(embedding: Embedding) -> None:
    lines = embedding_lines(embedding, {3: "cat", 5: "dog"})

    assert len(lines) == embedding.samples
    assert {(line["kind"], line["step"]) for line in lines} == {
        ("real", ""),
        ("generated", 0),
        ("generated", 1),
    }
    first = embedding.points[0]
    assert (lines[0]["class"], lines[0]["x"], lines[0]["y"]) == ("cat", *first.places[0])


def test_panels_share_real_points_and_have_their_own_step(embedding: Embedding) -> None:
    with figure_style():
        figure = embedding_figure(embedding, {3: "_cat $a", 5: "dog"}, ["before", "after"])
        before, after = (
            [np.asarray(drawn.get_offsets()) for drawn in axes.collections] for axes in figure.axes
        )

    assert [axes.get_title() for axes in figure.axes] == ["before", "after"]
    real = {p.class_id: p.places for p in embedding.points if p.step is None and not p.mean}
    for panel in (before, after):
        for places in real.values():
            assert any(np.array_equal(places, drawn) for drawn in panel)
    for p in embedding.points:
        shown = [any(np.array_equal(p.places, d) for d in panel) for panel in (before, after)]
        assert shown == [p.step in (None, 0), p.step in (None, 1)]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:2] == ["_cat $a", "dog"]


def test_real_is_filled_and_generated_outlined(embedding: Embedding) -> None:
    with figure_style():
        axes = embedding_figure(embedding, {3: "a", 5: "b"}, ["before", "after"]).axes[0]

    filled = [len(drawn.get_facecolor()) > 0 for drawn in axes.collections]
    # Samples of both classes, then means; real before generated.
    assert filled == [True, False, True, False, True, False, True, False]
    edges = [to_rgb(drawn.get_edgecolor()[0]) for drawn in axes.collections]
    assert edges[4] == edges[6] == to_rgb("black")
    assert edges[1] != edges[3]
