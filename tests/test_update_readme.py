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

- ncm: 5 epochs.

Missing:

- ldc, seed 0: `fscil-bench run`

## Published

| Published | 0 |
| --- | ---: |
| CEC | 73.07 |
"""
README = """Before.

<!-- table: toy -->
old
<!-- end of table -->

<!-- table: other -->
kept
<!-- end of table -->

![A curve](docs/curve-toy.png)
![Another](docs/loss-curves-other_1.png)
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

    table = "| Method | 0 |\n| --- | ---: |\n| ncm | 81.50 |\n\n- ncm: 5 epochs.\n\n"
    expected = README.replace("old\n", f"\n{table}")
    assert readme.read_text() == expected
    assert (readme.parent / "docs" / "curve-toy.png").read_bytes() == b"new picture"
    assert done.stdout.splitlines() == [
        "left as it is: table of other",
        "left as it is: picture loss-curves of other_1",
    ]
