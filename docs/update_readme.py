"""Put the generated table and picture into README.md, so that no number there is typed.

python docs/update_readme.py [RESULTS]
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- table: {} -->", "<!-- end of table -->"


def main() -> None:
    """Replace every block between table markers by the report of that protocol."""
    results = Path(sys.argv[1] if len(sys.argv) > 1 else "results")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    for protocol in re.findall(r"<!-- table: (\S+) -->", text):
        folder = results / "reports" / protocol / "main-table"
        lines = (folder / "main-table.md").read_text(encoding="utf-8").splitlines()
        table = [line for line in lines if line.startswith(("|", "- "))]
        rows = "\n".join(line for line in table if line.startswith("|"))
        notes = "\n".join(line for line in table if line.startswith("- "))
        begin = BEGIN.format(protocol)
        block = f"{begin}\n\n{rows}\n\n{notes}\n\n{END}"
        text = re.sub(f"{re.escape(begin)}.*?{re.escape(END)}", lambda _: block, text, flags=re.S)  # noqa: B023
        shutil.copyfile(folder / "curve.png", ROOT / "docs" / f"curve-{protocol}.png")
    readme.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
