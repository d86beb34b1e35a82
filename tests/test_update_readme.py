from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "docs" / "update_readme.py"
REPORT = """# Toy (toy)

| Method | 0 |
| --- | ---: |
| ncm | 81.50 |
| ncm | 80.25 |

- Gains are paired by seed.

- All rows: 5 epochs.
- ncm: 12 bytes stored.

## Published

| Published | 0 | Notes |
| --- | ---: | --- |
| CEC | 73.07 | a |
| FACT | 74.60 | a b |
| TEEN | 74.92 | b |

- All rows: printed elsewhere.
"""
README = """Before.

<!-- table: toy/main-table -->
old
<!-- end of table -->

<!-- published: toy/main-table: CEC; TEEN -->
old
<!-- end of table -->

<!-- table: other_1/grid/representation=cosine,fact -->
kept
<!-- end of table -->

![A curve](docs/curve-toy.png)
![Another](docs/loss-curves-other_1.png)
"""
NEW = """
| Method | 0 |
| --- | ---: |
| ncm | 81.50 |
| ncm | 80.25 |

All rows: 5 epochs. [All notes](docs/main-table-toy.md)

"""
PUBLISHED = """
| Published | 0 | Notes |
| --- | ---: | --- |
| CEC | 73.07 | a |
| TEEN | 74.92 | b |

[All notes](docs/main-table-toy.md)

"""


def update(folder: Path, *files: str) -> list[str]:
    named = [str(folder / name) for name in files or ["README.md"]]
    words = [sys.executable, str(SCRIPT), str(folder / "results"), *named]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


def test_tables_and_pictures_of_reports_are_put_in_and_the_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "reports" / "toy" / "main-table"
    docs, readme = tmp_path / "docs", tmp_path / "README.md"
    for place in (folder, docs):
        place.mkdir(parents=True)
    (folder / "main-table.md").write_text(REPORT)
    (folder / "curve.png").write_bytes(b"new picture")
    readme.write_text(README)
    done = update(tmp_path)
    assert readme.read_text() == README.replace("old\n", NEW, 1).replace("old\n", PUBLISHED)
    assert (docs / "main-table-toy.md").read_text() == REPORT
    assert (docs / "curve-toy.png").read_bytes() == b"new picture"
    assert sorted(path.name for path in docs.iterdir()) == ["curve-toy.png", "main-table-toy.md"]
    assert done == [
        f"left as it is: {name}, of which there is no report"
        for name in ("grid-other_1.md", "loss-curves-other_1.png")
    ]


def test_published_figures_never_stand_as_measured_ones(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "reports" / "toy" / "main-table" / "usual=True"
    for place in (folder, tmp_path / "docs"):
        place.mkdir(parents=True)
    (folder / "main-table.md").write_text("# Toy\n\n" + REPORT.partition("## Published\n\n")[2])
    begin = "<!-- table: toy/main-table/usual=True -->"
    other = "<!-- published: toy/main-table/usual=True: SAVC -->"
    text = f"{begin}\nkept\n<!-- end of table -->\n{other}\nkept\n<!-- end of table -->\n"
    (tmp_path / "README.md").write_text(text)

    told = update(tmp_path)

    assert (tmp_path / "README.md").read_text() == text
    assert told == [
        f"left as it is: {each}, of which main-table.md has no table or not all rows"
        for each in (begin, other)
    ]


def test_a_figure_is_that_of_the_table_here(tmp_path: Path) -> None:
    reports = tmp_path / "results" / "reports" / "toy"
    for part, picture in (("a", b"of a part"), ("main-table", b"of all")):
        place = reports / "main-table" / "usual=True" if part == "a" else reports / part
        place.mkdir(parents=True, exist_ok=True)
        (place / "main-table.md").write_text(REPORT)
        (place / "curve.png").write_bytes(picture)
    (tmp_path / "docs").mkdir()
    table = "<!-- table: toy/main-table/usual=True -->\n<!-- end of table -->\n"
    (tmp_path / "README.md").write_text(f"{table}![A curve](docs/curve-toy.png)\n")

    assert update(tmp_path) == []
    assert (tmp_path / "docs" / "curve-toy.png").read_bytes() == b"of a part"


def test_a_page_of_the_docs_links_copies_beside_it(tmp_path: Path) -> None:
    folder, docs = tmp_path / "results" / "reports" / "toy" / "main-table", tmp_path / "docs"
    for place in (folder, docs):
        place.mkdir(parents=True)
    (folder / "main-table.md").write_text(REPORT)
    (folder / "curve.png").write_bytes(b"new picture")
    begin, end = "<!-- table: toy/main-table -->\n", "<!-- end of table -->\n"
    for name, text in (
        ("README.md", begin + end),
        ("docs/results.md", f"{begin}{end}![](curve-toy.png)\n"),
    ):
        (tmp_path / name).write_text(text)

    assert update(tmp_path, "README.md", "docs/results.md") == []
    page = begin + NEW.replace("(docs/", "(") + end + "![](curve-toy.png)\n"
    assert (docs / "results.md").read_text() == page
    assert (tmp_path / "README.md").read_text() == begin + NEW + end
    assert (docs / "curve-toy.png").read_bytes() == b"new picture"


def test_verdicts_of_several_reports_stand_side_by_side(tmp_path: Path) -> None:
    for name, verdicts in (("toy", ("holds", "no")), ("other", ("no", "open"))):
        folder = tmp_path / "results" / "reports" / name / "claims"
        folder.mkdir(parents=True)
        rows = [f"| ({c}) | said {c} | 1 | {v} |" for c, v in zip("ab", verdicts, strict=True)]
        head = [f"# Which hold: {name.title()} ({name})", "", "| Claim | Said | Mean | Verdict |"]
        (folder / "claims.md").write_text("\n".join([*head, "| --- | --- | ---: | --- |", *rows]))
    readme, begin = tmp_path / "docs" / "results.md", "<!-- verdicts: toy/claims: other/claims -->"
    readme.parent.mkdir()
    readme.write_text(f"{begin}\n<!-- end of table -->\n")
    assert update(tmp_path, "docs/results.md") == []
    assert readme.read_text().splitlines() == [
        begin,
        "",
        "| Claim | Said | Toy (toy) | Other (other) |",
        "| --- | --- | --- | --- |",
        "| (a) | said a | holds | no |",
        "| (b) | said b | no | open |",
        "",
        "All notes: [toy](claims-toy.md), [other](claims-other.md)",
        "",
        "<!-- end of table -->",
    ]
    assert (readme.parent / "claims-other.md").exists()
    (tmp_path / "results" / "reports" / "other" / "claims" / "claims.md").unlink()
    told = update(tmp_path, "docs/results.md")
    assert any("of which there is no other/claims" in line for line in told)
    assert "| (a) | said a | holds | no |" in readme.read_text()
