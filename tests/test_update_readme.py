from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_tables_and_pictures_of_reports_are_put_in_and_the_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "reports" / "toy" / "main-table"
    docs, readme = tmp_path / "docs", tmp_path / "README.md"
    for place in (folder, docs):
        place.mkdir(parents=True)
    (folder / "main-table.md").write_text(REPORT)
    (folder / "curve.png").write_bytes(b"new picture")
    readme.write_text(README)
    words = [sys.executable, str(SCRIPT), str(tmp_path / "results"), str(readme)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert readme.read_text() == README.replace("old\n", NEW)
    assert (docs / "main-table-toy.md").read_text() == REPORT
    assert (docs / "curve-toy.png").read_bytes() == b"new picture"
    assert sorted(path.name for path in docs.iterdir()) == ["curve-toy.png", "main-table-toy.md"]
    assert done.stdout.splitlines() == [
        f"left as it is: {name}, of which there is no report"
        for name in ("grid-other_1.md", "loss-curves-other_1.png")
    ]
