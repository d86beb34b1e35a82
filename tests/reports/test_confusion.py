from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.errors import FscilError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import ReportInput, ReportOutput
from fscil_bench.reports._confusion_figures import block_figure, rate_figure, rate_lines
from fscil_bench.reports._figures import figure_style
from fscil_bench.reports._rows import group_rows
from fscil_bench.reports.confusion import Confusion
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the figures, which take most of a report's time."""
    monkeypatch.setattr("fscil_bench.reports.confusion._draw", lambda *_: ())


@pytest.fixture
def make(store: Store, tmp_path: Path, registry: Registry) -> Any:
    """Return a function that makes the report of all stored runs into `out`."""

    def build(pairs: int = 10, rows: str = "", **asked: Any) -> ReportOutput:
        runs, _ = store.runs()
        given = ReportInput(Selection("toy", **asked), runs, tmp_path / "out", registry)
        return Confusion(Confusion.Params(pairs, rows)).build(given)

    return build


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("undrawn")
def test_the_tables_by_hand(factory: Any, make: Any) -> None:
    factory.write(factory.spec("ldc"))
    factory.write(factory.spec("ncm"), [(36, 0), (30, 0), (20, 0)])

    text = make().text

    # ldc: a quarter of base images, all of class 3, are taken for class 4; class 5's for class 0.
    assert "| ldc | 1 | **75.00** | **0.00** | 25.00 | **50.00** | **0.00** | 50.00 |" in text
    # ncm: classes 2 and 3 are wrong, taken for 3 and 4; 4 for 5 and 5 for 0.
    assert "| ncm | 1 | 50.00 | 25.00 | 25.00 | 0.00 | 50.00 | 50.00 |" in text
    # ldc, session by session: 6 and 10 of 40 base images; 4 of 10 and 10 of 20 new ones.
    assert "| ldc | 1 | **15.00** | 25.00 |" in text
    assert "| ldc | 1 | **40.00** | 50.00 |" in text
    # Forgetting: best of 90 and 85, less 75. Class 4: 60 when it was new, then 100.
    assert "| ldc | 1 | **15.00** | **-40.00** | **-12.50** |" in text
    assert "| ldc | 1 | 90.00 | **60.00** | 0.00 | **30.00** |" in text


@pytest.mark.usefixtures("undrawn")
def test_the_most_confused_classes_have_names_and_sessions(factory: Any, make: Any) -> None:
    factory.write(factory.spec("ldc"))

    text = make().text

    assert "| ldc | class 3 (base) | class 4 (session 1) | 10.00 | 100.00 |" in text
    assert "| ldc | class 5 (session 2) | class 0 (base) | 10.00 | 100.00 |" in text
    assert "class 5 (session 2)" not in make(pairs=1).text


def test_files_hold_what_is_shown(factory: Any, make: Any, tmp_path: Path) -> None:
    for seed in range(2):
        factory.write(factory.spec(seed=seed))

    output = make()

    folder = tmp_path / "out"
    assert sorted(file.name for file in output.files) == [
        "base-to-new.csv",
        "blocks.csv",
        "blocks.pdf",
        "blocks.png",
        "confusion.csv",
        "confusion.md",
        "confusion.tex",
        "forgetting.csv",
        "new-to-base.csv",
        "pairs.csv",
        "plasticity.csv",
        "rates.csv",
        "rates.pdf",
        "rates.png",
    ]
    assert sorted(folder.iterdir()) == sorted(output.files)
    assert (folder / "confusion.md").read_text("utf-8") == output.text
    text = (folder / "confusion.tex").read_text("utf-8")
    assert text.isascii()
    assert "U+" not in text
    (line,) = lines_of(folder / "forgetting.csv")
    assert (line["label"], line["runs"], line["session_1_n"]) == ("ncm", "2", "2")
    assert float(line["session_1_mean"]) == pytest.approx(-40)
    pair = lines_of(folder / "pairs.csv")[0]
    assert (pair["class_id"], pair["taken_for_id"], pair["images_mean"]) == ("3", "4", "10.0")


def test_bars_are_what_the_csv_says(factory: Any, registry: Registry) -> None:
    factory.write(factory.spec())
    rows = group_rows(factory.store.runs()[0], registry)

    lines = rate_lines(rows)
    with figure_style():
        base, new = rate_figure(lines).axes

    heights = [[bar.get_height() for bar in stack] for stack in base.containers]
    names = ("base_right", "base_to_base", "base_to_new")
    assert heights == [[line[f"{name}_mean"] for line in lines] for name in names]
    assert [bar.get_hatch() for stack in base.containers for bar in stack[:1]] == [
        None,
        "////",
        "....",
    ]
    tops = [bar.get_y() + bar.get_height() for bar in new.containers[-1]]
    assert tops[1:] == pytest.approx([100, 100])


def test_blocks_are_written_into_their_fields(factory: Any, registry: Registry) -> None:
    factory.write(factory.spec())
    with figure_style():
        axes = block_figure(group_rows(factory.store.runs()[0], registry)).axes[0]

    texts = {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in axes.texts}
    assert texts[0, 0] == "75"
    assert texts[0, 1] == "25"
    assert texts[2, 0] == "100"


def test_more_rows_than_a_page_holds_are_not_drawn(factory: Any, make: Any, tmp_path: Path) -> None:
    for place in range(7):
        factory.write(factory.spec(f"m{place}"), [(36, 0), (34, 6), (10 + place, 10)])

    output = make()

    assert "the 6 rows with the best last session" in output.text
    drawn = {line["label"] for line in lines_of(tmp_path / "out" / "blocks.csv")}
    assert drawn == {f"m{place}" for place in range(1, 7)}


@pytest.mark.usefixtures("undrawn")
def test_rows_with_fewer_sessions_leave_cells_empty(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    factory.write(factory.spec("ncm"))
    factory.write(
        factory.spec("ldc", protocol=toy_protocol.override(sessions=1)), [(36, 0), (34, 6)]
    )

    text = make().text

    # Forgetting and plasticity of ldc: of its base session alone, and of sessions 0 and 1.
    assert "| ldc | 1 | **5.00** | – | 5.00 |" in text
    assert "| ldc | 1 | 90.00 | 60.00 | – | **60.00** |" in text


@pytest.mark.usefixtures("undrawn")
def test_a_protocol_of_one_session_has_errors_alone(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    factory.write(factory.spec(protocol=toy_protocol.override(sessions=0)), [(36, 0)])

    text = make().text

    assert "| ncm | 1 | 90.00 | 10.00 | 0.00 | – | – | – |" in text
    assert "Forgetting, by session" not in text
    assert "Plasticity, by session" not in text


@pytest.mark.usefixtures("undrawn")
def test_nothing_confused_is_said_so(factory: Any, make: Any, tmp_path: Path) -> None:
    factory.write(factory.spec(), [(40, 0), (40, 10), (40, 20)])

    assert "No image was taken for another class." in make().text
    assert not (tmp_path / "out" / "pairs.csv").exists()


@pytest.mark.usefixtures("undrawn")
def test_without_runs_the_command_that_makes_one_is_given(factory: Any, make: Any) -> None:
    factory.write(factory.spec("ncm"))

    with pytest.raises(FscilError, match="fscil-bench run --method ldc --protocol toy --seeds 4"):
        make(methods=("ldc",), seeds=(4,))


@pytest.mark.usefixtures("undrawn")
def test_missing_seeds_come_with_their_commands(factory: Any, make: Any) -> None:
    factory.write(factory.spec())

    output = make(seeds=(0, 1))

    command = "fscil-bench run --method ncm --protocol toy --seeds 1 --precision fp32"
    assert output.missing == (command,)
    assert f"- ncm, seed 1: `{command}`" in output.text
