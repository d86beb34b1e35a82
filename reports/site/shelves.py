"""What other reports have written: found beside the results, copied into the site, described."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fscil_bench.errors import StoreError, UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.document import html

PICTURE, TEXT = ".png", ".md"
KINDS = (PICTURE, ".pdf", ".csv", ".tex", TEXT)
"""What is copied, in the order of links."""
FOLDER = "reports"
"""Where copies lie in the site, in the same order of folders."""


@dataclass(frozen=True)
class Figure:
    """A picture's path in the site with its caption, and the same figure as PDF and as numbers."""

    picture: str
    caption: str
    links: Sequence[str]


@dataclass(frozen=True)
class Shelf:
    """One report's files of one protocol.

    Attributes:
        anchor: identifies it on the page.
        part: what it was made of, where it was not made of everything.
        text: the Markdown it wrote, as HTML that holds no HTML of others.
        links: paths of its files that belong to no figure.
        files: all its files by their path in the site.
    """

    anchor: str
    protocol: str
    report: str
    title: str
    part: str
    figures: Sequence[Figure]
    text: str
    links: Sequence[str]
    files: Mapping[str, bytes]


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
    folders: dict[PurePosixPath, dict[str, bytes]] = {}
    for path in sorted(_files(reports, leave_out)):
        place = PurePosixPath(path.relative_to(reports).parent.as_posix())
        if protocol in (None, place.parts[0]):
            try:
                content = path.read_bytes()
            except OSError as error:
                raise StoreError(f"{path}: cannot be read ({error.strerror})") from error
            folders.setdefault(place, {})[f"{FOLDER}/{place}/{path.name}"] = content
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
            wanted = path.suffix in KINDS and not path.name.startswith(".") and path.is_file()
            if wanted and path.resolve().is_relative_to(root):
                yield path


def _shelf(
    place: PurePosixPath, files: Mapping[str, bytes], number: int, registry: Registry
) -> Shelf:
    protocol, report, *parts = place.parts
    part = "/".join(parts)
    try:
        title: str = registry.get("report", report).value.title
    except UsageError:
        title = report
    where = f"{protocol}, {part}" if part else protocol
    texts = [path for path in files if path.endswith(TEXT)]
    figures = []
    for picture in (path for path in files if path.endswith(PICTURE)):
        stem = PurePosixPath(picture).stem
        same = [path for path in files if PurePosixPath(path).stem == stem]
        links = [path for path in same if path not in (picture, *texts)]
        figures.append(Figure(picture, f"{stem}: {title}; {where}", links))
    shown = {path for figure in figures for path in (figure.picture, *figure.links)}
    return Shelf(
        anchor=f"report-{number}",
        protocol=protocol,
        report=report,
        title=title,
        part=part,
        figures=figures,
        text="\n".join(html(files[path].decode("utf-8", "replace"), below=3) for path in texts),
        links=[path for path in files if path not in shown],
        files=files,
    )
