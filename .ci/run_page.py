"""Do what a page of the documentation says: write its titled blocks, run its `shell` blocks.

python .ci/run_page.py PAGE, in the folder where a reader would sit. Other blocks are for reading.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Go through the page from its top; the first command that fails ends it."""
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    for language, title, text in BLOCK.findall(page):
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif language == "shell":
            print(text, flush=True)
            subprocess.run(["bash", "-euo", "pipefail", "-c", text], check=True)


if __name__ == "__main__":
    main()
