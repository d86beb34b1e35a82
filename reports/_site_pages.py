"""The site's pages, from templates that escape whatever they are given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fscil_bench.metrics import Interval
from fscil_bench.store.files import write_text

from ._facts import human_bytes
from ._tables import cell_text

# Every command loads every report, and few need this.
if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = Path(__file__).parent / "assets"
COPIED = ("site.css", "table.js", "curves.js")


@dataclass(frozen=True)
class Pages:
    """Writes pages into a folder; `shared` is what every template knows."""

    folder: Path
    shared: Mapping[str, Any]
    templates: Environment

    def write(self, path: str, template: str, **values: Any) -> Path:
        """Write the page at a path of the site.

        Raises:
            StoreError: it cannot be written.
        """
        # Relative addresses alone work from a file.
        root = "../" * path.count("/")
        text = self.templates.get_template(template).render(**self.shared, root=root, **values)
        write_text(self.folder / path, text)
        return self.folder / path


def pages(folder: Path, **shared: Any) -> Pages:
    """Return what writes pages into a folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= _filters()
    return Pages(folder, shared, templates)


def write_assets(folder: Path) -> None:
    """Write style, scripts and one copy of the plotting library.

    Raises:
        StoreError: they cannot be written.
    """
    from plotly.offline import get_plotlyjs

    for name in COPIED:
        write_text(folder / name, (ASSETS / name).read_text(encoding="utf-8"))
    write_text(folder / "plotly.min.js", get_plotlyjs())


def counted(count: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _filters() -> dict[str, Callable[..., str]]:
    return {
        "cell": _cell,
        "number": _number,
        "percent": _percent,
        "bytes": human_bytes,
        "counted": counted,
    }


def _cell(interval: Interval) -> str:
    return cell_text(interval, " ± ")


def _number(value: float) -> str:
    """Return a number in full for scripts to sort by; nothing for NaN."""
    return "" if math.isnan(value) else repr(value)


def _percent(fraction: float) -> str:
    return cell_text(Interval(100 * fraction, math.nan, 1), "")
