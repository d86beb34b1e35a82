"""Put generated tables and pictures into README.md, so that no number there is typed.

python docs/update_readme.py [RESULTS [README]]

What stands between `<!-- table: PROTOCOL/REPORT -->` and `<!-- end of table -->` becomes the
report's first table with the note on all its rows and a link to a copy of the report; of a report
on a part of the rows the part's folder follows, PROTOCOL/REPORT/PART. `![…](docs/FIGURE-PROTOCOL
.png)` becomes a copy of that figure. A report or figure that RESULTS has not leaves things as they
are, and is named.
"""

from __future__ import annotations

import re
import shutil
import sys
from itertools import dropwhile, takewhile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- table: (\S+) -->).*?(<!-- end of table -->)", re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]*\]\(docs/([a-z]+(?:-[a-z]+)*)-(\w+)\.png\)")


def main() -> None:
    """Update the tables and pictures of a README, and what they link to."""
    results = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    readme = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    reports = results / "reports"
    copied = {_copy(place): _file(reports, place) for _, place, _ in BLOCK.findall(text)}
    for stem, protocol in PICTURE.findall(text):
        drawn = sorted((reports / protocol).glob(f"*/{stem}.png"))
        copied[f"{stem}-{protocol}.png"] = drawn[0] if drawn else reports / f"{stem}.png"
    for name, source in copied.items():
        if source.exists():
            shutil.copyfile(source, readme.parent / "docs" / name)
        else:
            print(f"left as it is: {name}, of which there is no report")
    readme.write_text(with_tables(text, reports), encoding="utf-8")


def with_tables(text: str, reports: Path) -> str:
    """Return a README's text with the tables of those reports that were drawn."""

    def block(match: re.Match[str]) -> str:
        begin, place, end = match.groups()
        file = _file(reports, place)
        if not file.exists():
            return match[0]
        lines = file.read_text(encoding="utf-8").splitlines()
        table = takewhile(_is_row, dropwhile(lambda line: not _is_row(line), lines))
        note = next((line[2:] for line in lines if line.startswith("- All rows: ")), "")
        link = f"[All notes](docs/{_copy(place)})"
        return "\n".join([begin, "", *table, "", f"{note} {link}".strip(), "", end])

    return BLOCK.sub(block, text)


def _file(reports: Path, place: str) -> Path:
    """Return the Markdown file of a report."""
    return reports / place / f"{place.split('/')[1]}.md"


def _copy(place: str) -> str:
    """Return what a report's copy beside the pictures is called."""
    protocol, report, *_ = place.split("/")
    return f"{report}-{protocol}.md"


def _is_row(line: str) -> bool:
    return line.startswith("|")


if __name__ == "__main__":
    main()
