"""The site's pages, from templates that escape whatever they are given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fscil_bench.report import Column
from fscil_bench.reporting.facts import human_bytes
from fscil_bench.reporting.tables import cell_text

# Every command loads every report, and few need this.
if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = Path(__file__).parent / "assets"
COPIED = ("site.css", "table.js", "chart.js", "curves.js", "compare.js", "copy.js")


@dataclass(frozen=True)
class Pages:
    """Renders pages; `shared` is what every template knows, `files` what was made by path."""

    shared: Mapping[str, Any]
    files: dict[str, str | bytes] = field(default_factory=dict)
    templates: Environment = field(default_factory=lambda: _templates())

    def add(self, path: str, template: str, **values: Any) -> None:
        """Render the page at a path of the site."""
        # Relative addresses alone work from a file.
        root = "../" * path.count("/")
        page = self.templates.get_template(template)
        self.files[path] = page.render(**self.shared, root=root, **values)


def asset_files() -> dict[str, str | bytes]:
    """Return style and scripts by path."""
    return {f"assets/{name}": (ASSETS / name).read_text(encoding="utf-8") for name in COPIED}


def counted(count: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "cell": cell_text,
        "missing": math.isnan,
        "number": _number,
        "percent": _percent,
        "bytes": human_bytes,
        "counted": counted,
    }
    return templates


def _number(value: float) -> str:
    """Return a number in full for scripts to sort by; nothing for NaN."""
    return "" if math.isnan(value) else repr(float(value))


def _percent(fraction: float) -> str:
    return cell_text({"percent": 100 * fraction}, Column("percent", "%", kind="number"))
