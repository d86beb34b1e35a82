"""What other reports have written: found beside the results, copied into the site, described."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from fscil_bench.errors import StoreError, UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.document import html

PICTURE, TEXT = ".png", ".md"
KINDS = (PICTURE, ".pdf", ".csv", ".tex", TEXT)
"""What is copied, in the order of links."""


FOLDER = "reports"
"""Where copies lie in the site, in the same order of folders."""


@dataclass(frozen=True)
class File:
    """A copied file: its path in the site, and what it holds."""

    path: str
    content: bytes

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rpartition("/")[2]

    @property
    def href(self) -> str:
        """Its address in the site."""
        return quote(self.path)


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

    @property
    def files(self) -> list[File]:
        """All its files."""
        return [*(f for each in self.figures for f in (each.picture, *each.links)), *self.links]


def copied_shelves(
    reports: Path, leave_out: str, protocol: str | None, registry: Registry
) -> list[Shelf]:
    """Return what each report below `reports` has to show, with copies of its files.

    Args:
        reports: the folder PROTOCOL/REPORT/... of the results.
        leave_out: the name of a report that is not copied.
        protocol: the one whose reports are copied; None copies all.
        registry: knows the reports' titles.

    Raises:
        StoreError: a file cannot be read.
    """
    folders: dict[PurePosixPath, list[File]] = {}
    for path in sorted(_files(reports, leave_out)):
        place = PurePosixPath(path.relative_to(reports).parent.as_posix())
        if protocol in (None, place.parts[0]):
            folders.setdefault(place, []).append(_copy(path, place))
    return [
        _shelf(place, folders[place], number, registry)
        for number, place in enumerate(sorted(folders))
    ]


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


def _copy(path: Path, place: PurePosixPath) -> File:
    try:
        return File(f"{FOLDER}/{place}/{path.name}", path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error


def _shelf(place: PurePosixPath, files: Sequence[File], number: int, registry: Registry) -> Shelf:
    protocol, report, *parts = place.parts
    title, part = _title(report, registry), "/".join(parts)
    where = f"{protocol}, {part}" if part else protocol
    texts = [file for file in files if file.name.endswith(TEXT)]
    figures = []
    for picture in (file for file in files if file.name.endswith(PICTURE)):
        stem = picture.name.removesuffix(PICTURE)
        same = [f for f in files if f.name.rpartition(".")[0] == stem and f is not picture]
        links = [file for file in same if file not in texts]
        figures.append(Figure(picture, f"{stem}: {title}; {where}", links))
    shown = [file for figure in figures for file in (figure.picture, *figure.links)]
    return Shelf(
        anchor=f"report-{number}",
        protocol=protocol,
        report=report,
        title=title,
        part=part,
        figures=figures,
        text="\n".join(html(file.content.decode("utf-8", "replace"), below=3) for file in texts),
        links=[file for file in files if file not in shown],
    )


def _title(report: str, registry: Registry) -> str:
    try:
        title: str = registry.get("report", report).value.title
    except UsageError:
        return report
    return title
