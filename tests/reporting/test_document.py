from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.figure import Figure as Drawing

from fscil_bench.errors import StoreError
from fscil_bench.report import Column, Document, Figure, Lack, Notes, Section, Table
from fscil_bench.reporting.document import LONGEST, files_folder, html, markdown, write_document
from fscil_bench.reporting.figures import new_figure
from fscil_bench.request import Selection

TABLE = Table("numbers", pd.DataFrame({"label": ["a_b"], "x": [0.1]}), caption="All <here>.")
HIDDEN = Table("raw", pd.DataFrame({"y": [1, 2]}), printed=False)


def line() -> Drawing:
    figure = new_figure(1.0)
    figure.add_subplot().plot([0, 1], [0, 1])
    return figure


FIGURE = Figure("line", line, pd.DataFrame({"x": [0, 1]}), "A line.")
WHOLE = Document(
    "A *title*",
    [
        "First $5.",
        TABLE,
        HIDDEN,
        Section("Part", [FIGURE, Notes(["one", "two"], "More"), Section("Deeper", ["Last."])]),
    ],
    lacks=[Lack("ncm, seed 1", "run --seeds 1"), Lack("ncm, seed 1 again", "run --seeds 1")],
    warnings=["left out: x"],
    attachments={"first.html": "<p>", "pages/a.bin": b"\x00"},
)
MARKDOWN = """\
# A \\*title\\*

First $5.

All \\<here>.

| label | x |
| --- | ---: |
| a_b | 0.10 |

## Part

`line.png`: A line.

### More

- one
- two

### Deeper

Last.

Cannot be read:

- left out: x

Missing:

- ncm, seed 1: `run --seeds 1`
- ncm, seed 1 again: `run --seeds 1`
"""


def test_a_document_in_every_format(tmp_path: Path) -> None:
    output = write_document(WHOLE, tmp_path, "whole")

    assert output.text == MARKDOWN == (tmp_path / "whole.md").read_text("utf-8")
    assert [path.relative_to(tmp_path).as_posix() for path in output.files] == [
        "whole.md",
        "numbers.csv",
        "raw.csv",
        "whole.tex",
        "numbers.tex",
        "first.html",
        "line.png",
        "line.pdf",
        "line.csv",
    ]
    assert sorted(path for path in tmp_path.iterdir() if path.is_file()) == sorted(output.files)
    assert (tmp_path / "numbers.csv").read_text() == "label,x\na_b,0.1\n"
    assert (tmp_path / "raw.csv").read_text() == "y\n1\n2\n"
    assert (tmp_path / "line.csv").read_text() == "x\n0\n1\n"
    assert (tmp_path / "pages" / "a.bin").read_bytes() == b"\x00"
    assert (output.missing, output.warnings) == (("run --seeds 1",), ("left out: x",))
    assert output.document is WHOLE


def test_latex_has_the_tables_with_the_text_between_them(tmp_path: Path) -> None:
    write_document(WHOLE, tmp_path, "whole")
    whole, alone = ((tmp_path / f"{name}.tex").read_text() for name in ("whole", "numbers"))

    assert alone in whole
    assert whole.index(r"First \$5.") < whole.index(alone) < whole.index(r"one \par")
    assert r"\textbf{Deeper}" in whole
    assert whole.isascii()


def test_a_table_of_the_document_s_name_is_in_a_file_beside_it(tmp_path: Path) -> None:
    output = write_document(Document("T", ["Text.", TABLE]), tmp_path, "numbers")

    names = ["numbers.md", "numbers.csv", "numbers.tex", "numbers-alone.tex"]
    assert [path.name for path in output.files] == names
    whole, alone = ((tmp_path / name).read_text() for name in names[2:])
    assert "Text." in whole
    assert alone in whole
    assert "Text." not in alone


def test_formulas_and_notes_stand_below_their_table(tmp_path: Path) -> None:
    table = Table(
        "t",
        pd.DataFrame({"x": [1.0]}),
        [Column("x", "X", kind="number", decimals=1)],
        formulas=[r"X is $a \cdot b$.", r"In \%."],
        notes=["one"],
    )

    text = write_document(Document("T", [table]), tmp_path, "t").text

    assert text == "# T\n\n| X |\n| ---: |\n| 1.0 |\n\nX is a · b. In %.\n\n- one\n"


def test_html_shows_what_looks_like_html() -> None:
    shown = html(markdown(Document("T", ["<script>", TABLE])))

    assert "<script>" not in shown and "&lt;script&gt;" in shown
    assert "<td>a_b</td>" in shown


def test_files_are_the_same_each_time_whatever_a_user_has_set(tmp_path: Path) -> None:
    def contents(folder: str) -> list[bytes]:
        files = write_document(Document("T", [FIGURE]), tmp_path / folder, "t").files
        return [path.read_bytes() for path in files]

    plain = contents("plain")
    with mpl.rc_context({"font.size": 20, "text.usetex": True}):
        styled = contents("styled")
        assert mpl.rcParams["font.size"] == 20

    assert plain == styled


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(StoreError, match="file"):
        write_document(WHOLE, tmp_path / "file", "whole")


@dataclass(frozen=True)
class Params:
    rows: str = ""


def folder(rows: str = "", **asked: Any) -> str:
    return files_folder(Path("out"), Selection("toy", **asked), Params(rows)).as_posix()


def test_a_whole_report_is_in_its_folder() -> None:
    assert folder() == "out"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"methods": ("ncm", "ldc")}, "method=ncm,ldc"),
        ({"representations": ("fact",), "seeds": (0, 1, 2)}, "representation=fact_seeds=0-2"),
        ({"rows": "ncm"}, "rows=ncm"),
    ],
)
def test_a_part_is_in_a_folder_of_its_own(asked: dict[str, Any], name: str) -> None:
    assert folder(**asked) == f"out/{name}"


def test_signs_that_paths_do_not_take_are_replaced_and_told_apart() -> None:
    first, second = folder(split="outlier:0.2"), folder(split="outlier/0.2")

    assert first.startswith("out/split=outlier-0.2-")
    assert first != second
    assert len(Path(second).parts) == 2


def test_a_long_selection_has_a_short_name() -> None:
    first, second = (folder(rows="x" * 300 + end) for end in "ab")

    assert first != second
    assert len(Path(first).name) <= LONGEST + 17


def test_names_that_no_font_has_are_numbered_with_a_key(tmp_path: Path) -> None:
    cat, dog = "\U0010fffd cat", "\U0010fffd dog"

    def draw() -> Drawing:
        drawing = new_figure(1.0)
        axes = drawing.add_subplot()
        axes.set_xticks([0, 1, 2], [cat, "horse", dog])
        axes.set_title(cat)
        drawings.append(drawing)
        return drawing

    drawings: list[Drawing] = []
    figure = Figure("named", draw, pd.DataFrame({"x": [cat]}))
    output = write_document(Document("T", [figure]), tmp_path, "t")

    (axes,) = drawings[0].axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["#1", "horse", "#2"]
    assert axes.get_title() == "#1"
    key = (tmp_path / "named-names.csv").read_text("utf-8")
    assert key == f"number,name\n#1,{cat}\n#2,{dog}\n"
    assert tmp_path / "named-names.csv" in output.files
    assert output.warnings[0].endswith("named-names.csv tells them")
