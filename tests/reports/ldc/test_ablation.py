from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.reports.ldc.ablation import Ablation, choice_variants

LAST = {
    "baseline": [(30, 3), (32, 3), (34, 3)] * 2,
    "+ sampler": [(30, 2), (32, 2), (34, 2)] * 2,
    "+ mapping": [(30, 6), (32, 7), (34, 8)] * 2,
    "+ recurrent": [(30, 6), (32, 7), (34, 8)] * 2,
}
KINDS = ("tex", "csv")
CHOSEN = {
    "base_rows=trained": [(30, 6), (32, 7), (34, 8)] * 2,
    "new_means=borrowed": [(29, 9), (31, 10), (33, 11)] * 2,
    "bayes, shared": [(30, 5), (32, 5), (34, 5)] * 2,
    "bayes, mapped": [(30, 5), (32, 6), (34, 7)] * 2,
    "bayes, shared, borrowed": [(29, 9), (31, 9), (33, 9)] * 2,
}
"""Right base and new images of 40 and 20 in the last session, seed by seed."""


@pytest.fixture
def written(claims: Any) -> None:
    """Write a run for each row and seed."""
    for name, last in LAST.items():
        claims.write(claims.setup.ablation[name], last)
    choices = choice_variants(claims.setup)
    for name, last in CHOSEN.items():
        claims.write(choices[name], last, first=38 if "rows" in name else 36)


@pytest.mark.usefixtures("written")
def test_what_each_part_adds_is_paired_by_seed(study: Any, numbers: Any) -> None:
    sentences = [line for line in study(Ablation).text.splitlines() if line.startswith("- +")]

    # One image of 60 is 1.67 points; 4, 5 and 6 images more are 8.33 on average.
    assert sentences[0].startswith(
        "- + sampler has a lower accuracy after the last session than baseline, by 1.67 "
    )
    assert sentences[1] == (
        "- + mapping has a higher accuracy after the last session than + sampler, by 8.33 "
        "[6.77, 9.90] points (n = 6 seeds)."
    )
    assert sentences[2].startswith("- + recurrent and + mapping have the same accuracy")
    row = numbers("ablation-differences").loc["+ mapping − + sampler"]
    # The seeds' own spread, 2 base images each, is in neither.
    assert row["session_2_mean"] == pytest.approx(500 / 60)
    # s = √(4/5) images, t(0.975, 5) = 2.5705818.
    half = 100 / 60 * 2.5705818 * math.sqrt(4 / 5) / math.sqrt(6)
    assert row["session_2_half_width"] == pytest.approx(half, rel=1e-7)
    assert row[["last_base_mean", "last_new_mean"]].tolist() == pytest.approx([0, 25])
    assert (row["runs"], row["session_0_mean"]) == (6, 0)


@pytest.mark.usefixtures("written")
def test_choices_are_set_against_what_they_replace(study: Any, numbers: Any) -> None:
    output = study(Ablation)

    rows = numbers("ablation-differences")
    rows.index = rows.index.str.replace("−", "-")
    # Images more of 40 base and 20 new, and of all 60; in session 0 of 40.
    gains = {
        "base_rows=trained - base_rows=means": (2, 0, 0, 0),
        "new_means=borrowed - new_means=sample": (0, -1, 3, 2),
        "bayes, shared, borrowed - bayes, shared, sample": (0, -1, 4, 3),
        "bayes, shared - + sampler": (0, 0, 3, 3),
        "bayes, mapped - + mapping": (0, 0, -1, -1),
    }
    for name, images in gains.items():
        found = rows.loc[name, ["session_0_mean", "last_base_mean", "last_new_mean"]].tolist()
        percent = [100 * n / of for n, of in zip(images, (40, 40, 20), strict=False)]
        assert found == pytest.approx(percent, abs=1e-9), name
        assert rows.loc[name, "session_2_mean"] == pytest.approx(100 * images[3] / 60), name
    assert "bayes, shared has a higher accuracy after the last session than + sampler" in (
        output.text
    )
    table = numbers("ablation-choices")
    assert set(CHOSEN) | {"base_rows=means", "+ sampler", "+ mapping"} < set(table.index)
    assert table.loc["new_means=sample"].equals(table.loc["base_rows=means"]), "one run"


@pytest.mark.usefixtures("written")
def test_files_hold_what_is_shown(study: Any, numbers: Any, tmp_path: Path) -> None:
    output = study(Ablation, draw=True)

    names = [
        *("ablation.md", "ablation.tex", "ablation.csv", "ablation-alone.tex"),
        *(f"ablation-{name}.{kind}" for name in ("differences", "choices") for kind in KINDS),
        *(f"ablation-curves.{kind}" for kind in ("png", "pdf", "csv")),
    ]
    assert sorted(file.name for file in output.files) == sorted(names)
    whole, alone, other = (
        (tmp_path / f"out/ablation{name}.tex").read_text("ascii")
        for name in ("", "-alone", "-differences")
    )
    assert alone in whole
    assert other in whole
    assert "+ sampler has a lower accuracy after the last session than baseline" in whole
    drawn = numbers("ablation-curves").set_index(["panel", "x"], append=True)["mean"]
    assert set(drawn.index.droplevel("x")) == {
        *((name, "a") for name in LAST),
        *((name, "b") for name in LAST if name != "baseline"),
    }
    assert drawn["+ mapping", "b", 6] == pytest.approx(400 / 60), "4 images above the baseline"
    assert (output.missing, output.warnings) == ((), ())


def test_what_is_missing_is_named_and_the_rest_is_shown(claims: Any, study: Any) -> None:
    claims.write(claims.setup.ablation["+ mapping"], LAST["+ mapping"])

    output = study(Ablation)

    assert "| + mapping | 6 | 90.00" in output.text
    assert "+ mapping and + sampler cannot be compared" in output.text
    command = "fscil-bench run --method ldc --protocol toy --set sampler=none --seeds 0-5"
    assert command in output.missing
    assert "fscil-bench report ablation --protocol toy --seeds 0-5 --run-missing" in output.text
    caption = next(line for line in output.text.splitlines() if "ablation-curves.png" in line)
    assert caption.startswith("`ablation-curves.png`: accuracy against the number of classes seen;")
    assert "baseline" not in caption, "what is not drawn is not explained"


def test_one_panel_leaves_no_empty_half(claims: Any, study: Any) -> None:
    claims.write(claims.setup.ablation["+ mapping"], LAST["+ mapping"])

    (figure,) = (part for part in study(Ablation).document.parts if hasattr(part, "draw"))

    assert set(figure.numbers["panel"]) == {"a"}
