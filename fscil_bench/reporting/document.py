"""The writer: a document as Markdown, LaTeX, HTML, and as the files of its tables and figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fscil_bench.params import params_dict
from fscil_bench.report import Document, Figure, Notes, Part, ReportOutput, Section, Table
from fscil_bench.reporting.figures import cover_scripts, figure_style
from fscil_bench.reporting.measures import plain
from fscil_bench.reporting.tables import (
    csv_text,
    escape_latex,
    escape_markdown,
    latex_table,
    markdown_table,
    small_print,
    table_notes,
)
from fscil_bench.request import Selection, seeds_text
from fscil_bench.spec import digest_of
from fscil_bench.store.files import replaced_file, write_text

LONGEST = 100
"""Characters of a folder's name; file systems allow 255 bytes, and paths have a limit too."""


def write_document(document: Document, folder: Path, stem: str) -> ReportOutput:
    """Write a document: `stem`.md, `stem`.tex, and the files of its parts.

    Of each table `NAME.csv` and, if it is printed, `NAME.tex`; of each figure `NAME.png`,
    `NAME.pdf` and `NAME.csv` (and `NAME-names.csv`, where no font has the characters of some
    names); attachments under their own names, of which those in folders of their own are not
    listed. `stem`.tex has all printed tables with the text between them; if a table has that name
    and there is more than it, it is in `stem`-alone.tex too.

    Raises:
        StoreError: the folder cannot be written to.
    """
    text = markdown(document)
    contents: dict[str, str | bytes] = {f"{stem}.md": text}
    tables = list(_parts(document.parts, Table))
    contents |= {f"{table.name}.csv": csv_text(table.frame) for table in tables}
    printed = [table for table in tables if table.printed]
    texts = {f"{table.name}.tex": latex_table(table) for table in printed}
    alone = texts.pop(f"{stem}.tex", "")
    if printed:
        contents[f"{stem}.tex"] = latex(document)
    if alone and alone != contents[f"{stem}.tex"]:
        contents[f"{stem}-alone.tex"] = alone
    contents |= texts
    for name, content in {**contents, **document.attachments}.items():
        _write(folder / name, content)
    named = (*contents, *(name for name in document.attachments if "/" not in name))
    files = [folder / name for name in named]
    warnings = list(document.warnings)
    for figure in _parts(document.parts, Figure):
        own, unread = _write_figure(figure, folder)
        files, warnings = [*files, *own], [*warnings, *unread]
    missing = tuple(dict.fromkeys(lack.command for lack in document.lacks))
    return ReportOutput(document, text, tuple(files), missing, tuple(warnings))


def files_folder(folder: Path, selection: Selection, params: Any) -> Path:
    """Return a report's folder, or one in it that is named by what was asked for.

    A table of some methods, seeds or rows would otherwise replace the table of all.
    """
    asked: dict[str, Any] = {
        "method": ",".join(selection.methods),
        "representation": ",".join(selection.representations),
        "seeds": seeds_text(selection.seeds),
        "split": selection.split or "",
    }
    usual = params_dict(type(params)())
    changed = {name: v for name, v in params_dict(params).items() if v != usual[name]}
    words = [f"{name}={text}" for name, text in asked.items() if text]
    words += [f"{name}={value}" for name, value in changed.items()]
    return folder / _folder_name("_".join(words)) if words else folder


def markdown(document: Document) -> str:
    """Return the document as Markdown, with what it lacks and what could not be read."""
    parts = [f"# {escape_markdown(document.title)}", *_markdown(document.parts, 2)]
    if document.warnings:
        parts.append("Cannot be read:\n\n" + _bullets(document.warnings))
    if document.lacks:
        lines = [
            f"- {escape_markdown(lack.what)}: `{lack.command}`".replace("- : ", "- ")
            for lack in document.lacks
        ]
        parts.append("\n".join(["Missing:", "", *lines]))
    return "\n\n".join(parts) + "\n"


def latex(document: Document) -> str:
    """Return the printed tables one after the other, with the texts between them."""
    return "\n\\par\\medskip\n".join(_latex(document.parts))


def html(text: str, below: int = 0) -> str:
    """Return Markdown as a fragment of HTML, for a place `below` so many levels of headings.

    HTML in it is shown, not used, and pictures are left out: their addresses would be asked over
    the network.
    """
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.add_render_rule("image", lambda *_: "")
    tokens = reader.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + below)}"
    return str(reader.renderer.render(tokens, reader.options, {}))


def _parts(parts: Sequence[Part], kind: type[Any]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, kind):
            yield part
        elif isinstance(part, Section):
            yield from _parts(part.parts, kind)


def _markdown(parts: Sequence[Part], level: int) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield escape_markdown(part)
            case Table():
                yield from _markdown_of_table(part)
            case Figure():
                yield f"`{part.name}.png`: {escape_markdown(part.caption)}"
            case Notes():
                if part.heading:
                    yield f"{'#' * level} {escape_markdown(part.heading)}"
                if part.lines:
                    yield _bullets(part.lines)
            case Section():
                yield f"{'#' * level} {escape_markdown(part.title)}"
                yield from _markdown(part.parts, level + 1)


def _markdown_of_table(table: Table) -> Iterator[str]:
    if not table.printed:
        return
    if table.caption:
        yield escape_markdown(table.caption)
    yield markdown_table(table)
    if table.formulas:
        yield escape_markdown(" ".join(map(plain, table.formulas)))
    if notes := table_notes(table):
        yield _bullets(notes)


def _latex(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        match part:
            case str():
                yield small_print([escape_latex(part)])
            case Table():
                if part.printed:
                    caption = [escape_latex(part.caption)] if part.caption else []
                    yield (small_print(caption) if caption else "") + latex_table(part)
            case Notes():
                if part.lines:
                    yield small_print(map(escape_latex, part.lines))
            case Section():
                yield f"\\textbf{{{escape_latex(part.title)}}}\n"
                yield from _latex(part.parts)


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def _write(path: Path, content: str | bytes) -> None:
    if isinstance(content, str):
        write_text(path, content)
        return
    with replaced_file(path) as new:
        new.write_bytes(content)


def _write_figure(figure: Figure, folder: Path) -> tuple[list[Path], list[str]]:
    """Write a figure and its numbers; return its files, and warnings."""
    # Without the dates the same numbers make the same files.
    metadata: Mapping[str, dict[str, Any]] = {"png": {}, "pdf": {"CreationDate": None}}
    with figure_style():
        drawing = figure.draw()
        numbered = cover_scripts(drawing)
        for kind, entries in metadata.items():
            with replaced_file(folder / f"{figure.name}.{kind}") as new:
                drawing.savefig(new, format=kind, metadata=entries)
    tables = {f"{figure.name}.csv": figure.numbers}
    if numbered:
        names = pd.Series(numbered, name="name").rename_axis("number")
        tables[f"{figure.name}-names.csv"] = names.reset_index()
    for name, numbers in tables.items():
        _write(folder / name, csv_text(numbers))
    warning = (
        f"{figure.name}.png: no installed font has the characters of {len(numbered)} names, which "
        f"are numbered; {figure.name}-names.csv tells them"
    )
    files = [folder / name for name in (*(f"{figure.name}.{kind}" for kind in metadata), *tables)]
    return files, [warning] * bool(numbered)


def _folder_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9=,._-]", "-", text)
    # Two selections never share a folder, although names are shortened and signs replaced.
    return name if name == text and len(name) <= LONGEST else f"{name[:LONGEST]}-{digest_of(text)}"
