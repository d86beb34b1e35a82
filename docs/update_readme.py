"""Put generated tables and pictures into README.md, so that no number there is typed.

python docs/update_readme.py [RESULTS [README]]

A table is what stands between `<!-- table: PROTOCOL -->` and `<!-- end of table -->`, a picture
what `![…](docs/FIGURE-PROTOCOL.png)` names. Each is taken from the reports in RESULTS; one of
which there is no report stays as it is, and is named.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"(<!-- table: (\S+) -->).*?(<!-- end of table -->)", re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]*\]\(docs/([a-z]+(?:-[a-z]+)*)-(\w+)\.png\)")


def main() -> None:
    """Update the tables and pictures of a README."""
    results = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    readme = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(with_tables(text, results / "reports"), encoding="utf-8")
    for stem, protocol in PICTURE.findall(text):
        drawn = sorted((results / "reports" / protocol).glob(f"*/{stem}.png"))
        if drawn:
            shutil.copyfile(drawn[0], readme.parent / "docs" / f"{stem}-{protocol}.png")
        else:
            print(f"left as it is: picture {stem} of {protocol}")


def with_tables(text: str, reports: Path) -> str:
    """Return a README's text with the tables of those main tables that were drawn."""

    def block(match: re.Match[str]) -> str:
        begin, protocol, end = match.groups()
        file = reports / protocol / "main-table" / "main-table.md"
        if not file.exists():
            print(f"left as it is: table of {protocol}")
            return match[0]
        measured = re.split(r"\n(?:## Published|Missing:)\n", file.read_text(encoding="utf-8"))[0]
        rows = "\n".join(line for line in measured.splitlines() if line.startswith("|"))
        notes = "\n".join(line for line in measured.splitlines() if line.startswith("- "))
        return f"{begin}\n\n{rows}\n\n{notes}\n\n{end}"

    return BLOCK.sub(block, text)


if __name__ == "__main__":
    main()
