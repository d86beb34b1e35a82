"""Put generated tables and pictures into README.md and docs/results.md: no number there is typed.

python docs/update_readme.py [RESULTS [FILE ...]]

What stands between `<!-- table: PROTOCOL/REPORT -->` and `<!-- end of table -->` becomes the
report's first table of what was measured, with the note on all its rows and a link to a copy of
the report; of a report on a part of the rows the part's folder follows, PROTOCOL/REPORT/PART.
`<!-- published: PROTOCOL/REPORT: ROW; ROW -->` becomes those rows of the report's table of
published figures. `<!-- verdicts: PLACE: PLACE; PLACE -->` becomes the last column of the first
table of each of these reports, beside the first two of the first.
`![…](docs/FIGURE-PROTOCOL.png)` becomes a copy of that figure, of several that beside a table of
the same file. Copies lie in `docs`; a file in it links them without the folder.
A report, row or figure that RESULTS has not leaves things as they are, and is named.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(<!-- (table|published|verdicts): ([^\s:]+)(?:: (.+?))? -->).*?(<!-- end of table -->)",
    re.DOTALL,
)
PICTURE = re.compile(r"!\[[^\]]*\]\((?:docs/)?([a-z]+(?:-[a-z]+)*)-(\w+)\.png\)")
PUBLISHED = "| Published |"
"""Begins a table of published figures."""


def main() -> None:
    """Update the tables and pictures of the files, and what they link to."""
    results, *named = sys.argv[1:] or ["results"]
    files = [Path(name) for name in named] or [ROOT / "README.md", ROOT / "docs" / "results.md"]
    for file in files:
        update(file, Path(results) / "reports")


def update(file: Path, reports: Path) -> None:
    """Update one file, and the copies that it links."""
    text = file.read_text(encoding="utf-8")
    docs = file.parent if file.parent.name == "docs" else file.parent / "docs"
    places = [each for block in BLOCK.findall(text) for each in _places(*block[1:4])]
    copied = {_copy(place): _file(reports, place) for place in places}
    for stem, protocol in PICTURE.findall(text):
        own = [reports / place for place in places if place.split("/")[0] == protocol]
        drawn = [
            folder / f"{stem}.png" for folder in (*own, *sorted(reports.glob(f"{protocol}/*")))
        ]
        source = next((each for each in drawn if each.exists()), reports / f"{stem}.png")
        copied[f"{stem}-{protocol}.png"] = source
    for name, source in copied.items():
        if source.exists():
            shutil.copyfile(source, docs / name)
        else:
            print(f"left as it is: {name}, of which there is no report")
    links = "" if docs == file.parent else "docs/"
    file.write_text(with_tables(text, reports, links), encoding="utf-8")


def with_tables(text: str, reports: Path, links: str) -> str:
    """Return a text with the tables of those reports that were drawn; `links` leads to copies."""

    def block(match: re.Match[str]) -> str:
        begin, kind, place, names, end = match.groups()
        if kind == "verdicts":
            files = {each: _file(reports, each) for each in _places(kind, place, names)}
            if lacking := [each for each, own in files.items() if not own.exists()]:
                print(f"left as it is: {begin}, of which there is no {', '.join(lacking)}")
                return match[0]
            all_notes = ", ".join(f"[{p.split('/')[0]}]({links}{_copy(p)})" for p in files)
            table = _side_by_side([*files.values()])
            return "\n".join([begin, "", *table, "", f"All notes: {all_notes}", "", end])
        file = _file(reports, place)
        if not file.exists():
            return match[0]
        wanted = [name.strip() for name in names.split(";")] if names else []
        lines = file.read_text(encoding="utf-8").splitlines()
        table = _table(lines, kind == "published", wanted)
        if not table:
            print(f"left as it is: {begin}, of which {file.name} has no table or not all rows")
            return match[0]
        notes = (line[2:] for line in lines if line.startswith("- All rows: "))
        note = next(notes, "") if kind == "table" else ""
        link = f"[All notes]({links}{_copy(place)})"
        return "\n".join([begin, "", *table, "", f"{note} {link}".strip(), "", end])

    return BLOCK.sub(block, text)


def _table(lines: Sequence[str], published: bool, wanted: Sequence[str]) -> list[str]:
    """Return the first table of its kind, or its wanted rows; [] if there is none or one lacks."""
    for table in _tables(lines):
        if table[0].startswith(PUBLISHED) != published:
            continue
        named = [(row.split(" | ")[0].removeprefix("| "), row) for row in table[2:]]
        if set(wanted) <= {name for name, _ in named}:
            kept = [row for name, row in named if not wanted or name in wanted]
            return [*table[:2], *kept]
    return []


def _side_by_side(files: Sequence[Path]) -> list[str]:
    """Return the last columns of reports' first tables, by protocol, beside two of the first."""
    rows: dict[str, list[str]] = {}
    for file in files:
        title, *lines = file.read_text(encoding="utf-8").splitlines()
        header, _, *body = _table(lines, False, [])
        protocol = title.rpartition(": ")[2]
        for row in (header, *body):
            cells = row.removeprefix("| ").removesuffix(" |").split(" | ")
            own = rows.setdefault(cells[0], cells[:2])
            own.append(protocol if row is header else cells[-1])
    header, *body = (f"| {' | '.join(cells)} |" for cells in rows.values())
    return [header, "| --- " * (len(files) + 2) + "|", *body]


def _tables(lines: Sequence[str]) -> Iterator[list[str]]:
    for is_row, group in groupby(lines, key=lambda line: line.startswith("|")):
        if is_row:
            yield list(group)


def _places(kind: str, place: str, names: str) -> list[str]:
    """Return the places of the reports that a block draws from."""
    further = names.split(";") if kind == "verdicts" and names else []
    return [place, *(each.strip() for each in further)]


def _file(reports: Path, place: str) -> Path:
    """Return the Markdown file of a report."""
    return reports / place / f"{place.split('/')[1]}.md"


def _copy(place: str) -> str:
    """Return what a report's copy beside the pictures is called."""
    protocol, report, *_ = place.split("/")
    return f"{report}-{protocol}.md"


if __name__ == "__main__":
    main()
