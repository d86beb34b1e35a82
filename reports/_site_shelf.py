"""What other reports have written: found beside the results, copied into the site, described."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.store.files import replaced_file

PICTURE, TEXT = ".png", ".md"
KINDS = (PICTURE, ".pdf", ".csv", ".tex", TEXT)
"""What is copied, in the order of links."""


@dataclass(frozen=True)
class File:
    """A copied file: its name, its address in the site, its size in bytes."""

    name: str
    href: str
    size: int


@dataclass(frozen=True)
class Figure:
    """A picture with its caption, and the same figure as PDF and as numbers."""

    picture: File
    caption: str
    links: Sequence[File]


@dataclass(frozen=True)
class Shelf:
    """One report's files of one protocol.

    Attributes:
        anchor: identifies it on the page.
        part: what it was made of, where it was not made of everything.
        text: the Markdown it wrote, as HTML that holds no HTML of others.
        links: its files that belong to no figure.
    """

    anchor: str
    protocol: str
    report: str
    title: str
    part: str
    figures: Sequence[Figure]
    text: str
    links: Sequence[File]


def copy_shelves(
    reports: Path, target: Path, leave_out: str, protocol: str | None, registry: Registry
) -> list[Shelf]:
    """Copy the files of all reports below `reports`, and return what each has to show.

    Args:
        reports: the folder PROTOCOL/REPORT/... of the results.
        target: where the copies go, in the same order of folders.
        leave_out: the name of a report that is not copied.
        protocol: the one whose reports are copied; None copies all.
        registry: knows the reports' titles.

    Raises:
        StoreError: a file cannot be read or written.
    """
    shelves: list[Shelf] = []
    folders: dict[Path, list[Path]] = {}
    for path in sorted(_files(reports, leave_out)):
        folders.setdefault(path.parent, []).append(path)
    for folder in sorted(folders):
        if protocol not in (None, folder.relative_to(reports).parts[0]):
            continue
        place = folder.relative_to(reports)
        copies = [_copy(path, target, place) for path in folders[folder]]
        shelves.append(_shelf(folder, place, copies, len(shelves), registry))
    return shelves


def _files(reports: Path, leave_out: str) -> Iterator[Path]:
    """Yield what is copied, by no link to another place: a site may be published."""
    root = reports.resolve()
    for folder in reports.glob("*/*"):
        if folder.name == leave_out or not folder.resolve().is_relative_to(root):
            continue
        for path in folder.rglob("*"):
            if _wanted(path) and path.resolve().is_relative_to(root):
                yield path


def _wanted(path: Path) -> bool:
    return path.suffix in KINDS and not path.name.startswith(".") and path.is_file()


def _copy(path: Path, target: Path, place: Path) -> File:
    with replaced_file(target / place / path.name) as new:
        shutil.copyfile(path, new)
    address = "/".join(quote(part, safe="") for part in (target.name, *place.parts, path.name))
    return File(path.name, address, path.stat().st_size)


def _shelf(
    folder: Path, place: Path, files: Sequence[File], number: int, registry: Registry
) -> Shelf:
    protocol, report, *parts = place.parts
    title, part = _title(report, registry), "/".join(parts)
    where = f"{protocol}, {part}" if part else protocol
    figures = []
    for file in files:
        if file.name.endswith(PICTURE):
            stem = file.name.removesuffix(PICTURE)
            same = [f for f in files if f.name.rpartition(".")[0] == stem and f is not file]
            caption = f"{stem}: {title}; {where}"
            figures.append(Figure(file, caption, [f for f in same if not f.name.endswith(TEXT)]))
    shown = {f.name for figure in figures for f in (figure.picture, *figure.links)}
    texts = [folder / file.name for file in files if file.name.endswith(TEXT)]
    return Shelf(
        anchor=f"report-{number}",
        protocol=protocol,
        report=report,
        title=title,
        part=part,
        figures=figures,
        text="\n".join(_html(path.read_text("utf-8", "replace")) for path in texts),
        links=[file for file in files if file.name not in shown],
    )


def _title(report: str, registry: Registry) -> str:
    try:
        title: str = registry.get("report", report).value.title
    except UsageError:
        return report
    return title


def _html(markdown: str) -> str:
    """Return Markdown as HTML; HTML in it is shown as text, and pictures are left out."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    # They stand below, with captions; an address would otherwise be asked over the network.
    reader.add_render_rule("image", _nothing)
    tokens = reader.parse(markdown)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            # On the page the text stands below headings of its own.
            token.tag = f"h{min(6, int(token.tag[1:]) + 3)}"
    return str(reader.renderer.render(tokens, reader.options, {}))


def _nothing(*_: Any) -> str:
    return ""
