"""Differences in accuracy, on runs made by hand: 4 + 2 × 1 classes of 10 test images each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fscil_bench.plugins.registry import Plugin
from fscil_bench.reports.ldc.claims import accuracy
from fscil_bench.reports.ldc.claims.claim import Part

LAST = [(30, 3), (32, 3), (34, 3)] * 2  # 33, 35 and 37 of 60


def figures(part: Part) -> tuple[float, float, int]:
    return part.interval.mean, part.interval.half_width, part.interval.count


@pytest.mark.parametrize(
    ("letter", "after", "before"),
    [
        ("a", "+ mapping", "baseline"),
        ("b", "+ recurrent", "+ mapping"),
    ],
)
def test_what_adds_to_what(claims: Any, letter: str, after: str, before: str) -> None:
    for name, variant in claims.setup.ablation.items():
        better = name == after
        last = [(right + better, 3) for right in (30, 32, 34) * 2]
        claims.write(variant, last, first=36 + better)

    found = claims.claim(accuracy.part_claims, letter)

    assert found.verdict == "holds", f"{after} is better than {before}, by 1 image on each seed"
    assert figures(found.parts[0])[1:] == (0.0, 6)


def test_session_0_is_measured_by_the_base_rows(claims: Any) -> None:
    for rows, first in (("trained", 38), ("means", 36)):
        claims.write(claims.setup.base_rows(rows), first=first)

    found = claims.claim(accuracy.part_claims, "k")

    assert figures(found.parts[0]) == (5.0, 0.0, 6), "2 of 40 base images"
    assert (found.verdict, found.parts[0].detail) == ("holds", "95.00 against 90.00")


def test_each_loss_is_a_part(claims: Any) -> None:
    worse = {"emd": [(29, 3), (31, 3), (33, 3)] * 2, "js": [(29, 3), (32, 3), (35, 3)] * 2}
    for loss, last in ({"kl": LAST} | worse).items():
        claims.write(claims.setup.complete(loss=loss), last)

    claim = claims.claim(accuracy.part_claims, "c")

    verdicts = {"over emd": "holds", "over js": "cannot be told", "over hellinger": "not tested"}
    assert {part.name: part.verdict for part in claim.parts} == verdicts
    assert (claim.verdict, claim.parts[2].detail) == ("not tested", "its runs are not stored")

    claims.write(claims.setup.complete(loss="hellinger"), LAST)
    claim = claims.claim(accuracy.part_claims, "c")
    assert claim.parts[2].verdict == claim.verdict == "does not hold", "equals are no gain"


def test_mapping_against_empirical(claims: Any) -> None:
    curves = {"mapped": [1.0, 0.62, 0.5, 0.4], "empirical": [1.2, 1.0, 0.8, 0.6]}
    for covariance, curve in curves.items():
        new = 12 if covariance == "mapped" else 9
        for run in claims.write(claims.setup.unseen(covariance), [(30, new)] * 6):
            claims.add_artifacts(run, 1, classifier_loss=np.array(curve))

    epochs, new_classes = claims.claim(accuracy.mapping_claim).parts

    assert figures(epochs) == (2.0, 0.0, 6)
    assert epochs.detail == "4.00 against 2.00; final losses 0.60 against 0.40"
    assert figures(new_classes) == pytest.approx((15.0, 0.0, 6)), "3 of 20 new images"

    (run.folder / "artifacts.npz").write_bytes(b"PK")
    epochs, new_classes = claims.claim(accuracy.mapping_claim).parts
    assert (epochs.interval.count, new_classes.interval.count) == (5, 6), "its own pair alone"
    assert any(str(run.folder) in problem for problem in claims.problems)


def test_outliers_are_compared_by_the_difference_of_gains(claims: Any) -> None:
    setup = claims.setup
    # Of 60 images in the last session; every run starts with 36 of 40, 90 %.
    claims.write(setup.ldc(split="outlier:0.2"), [(27, 3), (30, 3), (33, 3)] * 2)
    claims.write(setup.free_lunch(split="outlier:0.2"), [(21, 3), (24, 3), (27, 3)] * 2)
    claims.write(setup.ldc(split="seeded"), LAST)
    claims.write(setup.free_lunch(split="seeded"), [(28, 2), (30, 2), (32, 2)] * 2)

    drop, retention = claims.claim(accuracy.outlier_claim).parts

    # Gains in A_T: 6 images for outliers, 3 otherwise, on every seed.
    assert figures(drop) == pytest.approx((5.0, 0.0, 6))
    assert drop.detail == "10.00 against 5.00"
    assert retention.interval.mean == pytest.approx(5.0 / 0.9)
    assert (drop.verdict, retention.verdict) == ("holds", "holds")


def episodes_of(claims: Any, method: str, shot: int, values: list[float]) -> Any:
    """Return stored episodes of one method as the shelf would find them."""
    variant = claims.setup.few_shot(shot)[method == "free_lunch"]
    schema = claims.registry.get("method", method).value.Params
    spec = claims.factory.spec(method, 0, claims.setup.protocol, params=vars(schema()))
    wanted = SimpleNamespace(run=spec, design=variant.episodes)
    record = SimpleNamespace(created="2024-01-01", network="")
    return SimpleNamespace(spec=wanted, record=record, accuracies=np.array(values), damage="")


def test_few_shot_accuracies_are_paired_by_episode(claims: Any) -> None:
    claims.given["episodes"] = [
        episodes_of(claims, "ldc", 1, [0.5, 0.7, 0.9] * 2),
        episodes_of(claims, "free_lunch", 1, [0.4, 0.6, 0.8] * 2),
        episodes_of(claims, "ldc", 5, [0.5, 0.7, 0.9]),
    ]

    claim = claims.claim(accuracy.few_shot_claim)

    one, five = claim.parts
    assert figures(one) == pytest.approx((10.0, 0.0, 6), abs=1e-9)
    assert (one.verdict, five.verdict, claim.pairs) == ("holds", "not tested", "episodes")


def test_fact_waits_until_it_is_registered(claims: Any) -> None:
    claims.write(claims.setup.ldc(), LAST)
    assert "not registered" in claims.claim(accuracy.fact_claim).parts[0].detail
    plain = claims.registry.get("representation", "cosine")
    claims.registry.add(Plugin("representation", "fact", plain.value, plain.file, "test"))
    del claims.setup.__dict__["fact"]

    fact = claims.setup.fact
    for seed in fact.seeds:
        brought, params = {"name": "fact"}, {"space": "raw"}
        spec = claims.factory.spec("ncm", seed, params=params, representation=brought)
        claims.factory.write(spec, [(36, 0), (34, 6), (20, 0)])

    assert claims.claim(accuracy.fact_claim).parts[0].interval.mean == pytest.approx(25.0)


def test_class_means_in_the_better_space_are_the_rival(claims: Any) -> None:
    setup = claims.setup
    claims.write(setup.ldc(), LAST)
    claims.write(setup.ncm("raw"), [(25, 3), (27, 3), (29, 3)] * 2)
    claims.write(setup.ncm("tukey"), [(29, 3), (31, 3), (33, 3)] * 2)
    claims.write(setup.free_lunch(), [(31, 3), (33, 3), (35, 3)] * 2)

    rows = accuracy.aims(setup, claims.shelf())

    words = ("last session", "average over sessions", "harmonic mean")
    assert [(row.letter, row.statement) for row in rows] == [
        (rival, figure) for rival in ("better of ncm", "free_lunch") for figure in words
    ]
    assert rows[0].parts[0].name == "over ncm in tukey space"
    assert rows[0].parts[0].interval.mean == pytest.approx(100 / 60)
    assert rows[3].parts[0].interval.mean == pytest.approx(-100 / 60)
    assert [row.verdict for row in rows] == ["holds"] * 3 + ["does not hold"] * 3
