from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "docs" / "update_readme.py"
REPORT = """# Toy (toy)

| Method | 0 |
| --- | ---: |
| ncm | 81.50 |

- Gains are paired by seed.

- All rows: 5 epochs.
- ncm: 12 bytes stored.

## Published

| Published | 0 |
| --- | ---: |
| CEC | 73.07 |
"""
README = """Before.

<!-- table: toy/main-table -->
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

All rows: 5 epochs. [All notes](docs/main-table-toy.md)

"""


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    """Return a README beside results with a report of protocol toy alone."""
    folder = tmp_path / "results" / "reports" / "toy" / "main-table"
    folder.mkdir(parents=True)
    (folder / "main-table.md").write_text(REPORT)
    (folder / "curve.png").write_bytes(b"new picture")
    (tmp_path / "docs").mkdir()
    file = tmp_path / "README.md"
    file.write_text(README)
    return file


def test_tables_and_pictures_of_reports_are_put_in_and_the_others_stay(readme: Path) -> None:
    words = [sys.executable, str(SCRIPT), str(readme.parent / "results"), str(readme)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)

    docs = readme.parent / "docs"
    assert readme.read_text() == README.replace("old\n", NEW)
    assert (docs / "main-table-toy.md").read_text() == REPORT
    assert (docs / "curve-toy.png").read_bytes() == b"new picture"
    assert sorted(path.name for path in docs.iterdir()) == ["curve-toy.png", "main-table-toy.md"]
    assert done.stdout.splitlines() == [
        "left as it is: grid-other_1.md, of which there is no report",
        "left as it is: loss-curves-other_1.png, of which there is no report",
    ]
