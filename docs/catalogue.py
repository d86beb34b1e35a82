"""What of the site is drawn from the code: a page a plug-in, measures, commands, examples.

MkDocs calls `on_config`, `on_files` and `on_page_markdown`; nothing is written but the site.
"""

from __future__ import annotations

import ast
import inspect
import logging
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import griffe
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import TypeAdapter

from fscil_bench.backbone import Backbone
from fscil_bench.cli.app import app
from fscil_bench.plugins.registry import Plugin, Registry, load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Document, Report
from fscil_bench.reporting.document import markdown
from fscil_bench.reporting.measures import ACCURACY, INTERVAL, MEASURES, plain
from fscil_bench.reporting.tables import escape_markdown
from fscil_bench.reports.published.rows import PublishedRow, published_name, published_rows
from fscil_bench.reports.published.table import published_section

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "method": "Methods",
    "representation": "Representations",
    "backbone": "Backbones",
    "protocol": "Protocols",
    "report": "Reports",
}
"""Kinds of plug-ins that have pages -> heading of their folder."""
AT_TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/": "examples.md",
}
"""What lies at the repository's top -> what the site calls it."""
ELSEWHERE = {
    **AT_TOP,
    "fscil_bench/backbones/": "catalogue/backbones/index.md",
    "fscil_bench/cli/": "cli.md",
    "fscil_bench/method.py": "api.md#fscil_bench.method",
    "fscil_bench/reporting/measures.py": "catalogue/measures.md",
    "fscil_bench/representation.py": "catalogue/representations/index.md",
    "methods/": "catalogue/methods/index.md",
    "protocols/": "catalogue/protocols/index.md",
    "protocols/cifar100.toml": "catalogue/protocols/cifar100.md",
    "reports/": "catalogue/reports/index.md",
    "reports/grid/": "catalogue/reports/grid.md",
}
"""What pages link outside of docs/, where the repository has it -> the site's page of it."""
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]+)")
"""Where a relative link of Markdown leads, without its anchor."""
NUMBERS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
Pages = dict[str, str]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of plug-ins and methods' notes into the navigation."""
    griffe.logger.setLevel(logging.ERROR)  # of docstrings read here; mkdocstrings has its own
    registry = load_registry()
    parts: list[Any] = [
        {title: [f"{_folder(kind)}/index.md"] + [_nav(p) for p in _plugins(registry, kind)]}
        for kind, title in FOLDERS.items()
    ]
    notes = sorted(file.relative_to(ROOT / "docs") for file in (ROOT / "docs/methods").glob("*.md"))
    parts += ["catalogue/measures.md", {"Notes on methods": [note.as_posix() for note in notes]}]
    for part in config.nav or ():
        if part.get("Catalogue") if isinstance(part, dict) else False:
            part["Catalogue"] = parts
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(text: str, page: Page, **_: Any) -> str:
    """Turn links to what the repository has outside of docs/ into links to the site's pages."""
    return relinked(text, f"docs/{page.file.src_uri}", page.file.src_uri)


def relinked(text: str, source: str, place: str) -> str:
    """Return a page's text with its links as the site has them.

    Args:
        text: Markdown.
        source: the file that it is in, from the repository's top.
        place: what the site calls the page.

    A strict build names a link to what the site has no page of.
    """

    def site(link: re.Match[str]) -> str:
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[0]))
        name = meant + "/" * link[0].endswith("/")
        found = ELSEWHERE.get(name, meant.removeprefix("docs/"))
        return posixpath.relpath(found, posixpath.dirname(place) or ".")

    return LINK.sub(site, text)


@cache
def pages() -> Pages:
    """Return every generated page by its place."""
    registry = load_registry()
    found: Pages = {"catalogue/measures.md": _measures(), "cli.md": _commands()}
    for name, place in AT_TOP.items():
        found[place] = _examples() if name.endswith("/") else _from_top(name, place)
    for kind, title in FOLDERS.items():
        plugins = _plugins(registry, kind)
        found[f"{_folder(kind)}/index.md"] = _overview(title, plugins)
        found |= {_place(each): _page(each, registry) for each in plugins}
    return found


@cache
def _published() -> dict[str, list[PublishedRow]]:
    """Return what is published for each protocol, by its name."""
    return {
        plugin.name: published_rows(plugin.value)
        for plugin in _plugins(load_registry(), "protocol")
    }


def _plugins(registry: Registry, kind: str) -> list[Plugin]:
    return [registry.get(kind, name) for name in registry.names(kind)]


def _folder(kind: str) -> str:
    return f"catalogue/{kind}s"


def _place(plugin: Plugin) -> str:
    return f"{_folder(plugin.kind)}/{plugin.name}.md"


def _nav(plugin: Plugin) -> dict[str, str]:
    return {plugin.name: _place(plugin)}


def _from_top(name: str, place: str) -> str:
    return relinked((ROOT / name).read_text(encoding="utf-8"), name, place)


def prose(text: str) -> str:
    """Return a docstring's text as Markdown: signs of mathematics stay, notes become links."""
    outside = text.split("`")[::2]
    told = [re.sub(r"\S(.*\S)?", lambda line: escape_markdown(line[0]), each) for each in outside]
    code = [f"`{' '.join(each.split())}`" for each in text.split("`")[1::2]]
    joined = "".join(a + b for a, b in zip(told, [*code, ""], strict=True))
    return re.sub(r"docs/((?:\w+/)*(\w+))\.md", r"[\2](../../\1.md)", joined)


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"

    heads = list(heads)
    found = [line(row) for row in rows]
    return "\n".join([line(heads), line("---" for _ in heads), *found]) if found else ""


def _values(values: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in values.items()) or "the defaults"


def _overview(title: str, plugins: list[Plugin]) -> str:
    rows = ([f"[`{p.name}`]({p.name}.md)", escape_markdown(p.title), _first(p)] for p in plugins)
    return f"# {title}\n\n{_table(['Name', 'In tables', ''], rows)}\n"


def _first(plugin: Plugin) -> str:
    """Return what a plug-in is in a sentence; of a protocol, its sessions."""
    value = plugin.value
    if isinstance(value, Protocol):
        return f"{value.base_classes} base classes, {value.sessions} sessions, {value.shot} shots"
    return prose((inspect.getdoc(value) or "").partition("\n\n")[0])


def _page(plugin: Plugin, registry: Registry) -> str:
    parts = {
        "protocol": _protocol,
        "method": _method,
        "representation": _representation,
        "report": _report,
        "backbone": _backbone,
    }[plugin.kind](plugin, registry)
    name = "" if plugin.title == plugin.name else f" (`{plugin.name}`)"
    heading = f"# {escape_markdown(plugin.title)}{name}"
    about = "" if plugin.kind == "protocol" else prose(inspect.getdoc(plugin.value) or "")
    bibtex = f"## Citation\n\n```bibtex\n{plugin.bibtex}\n```" if plugin.bibtex else ""
    return "\n\n".join(filter(None, [heading, about, *parts, bibtex])) + "\n"


def _method(plugin: Plugin, registry: Registry) -> Iterator[str]:
    method = plugin.value
    needs = method.needs
    facts = [
        "trains on images" if needs.images else "works on frozen features",
        *(f"reads the base images' view `{view}`" for view in needs.base_views),
        *(f"needs a representation with `{name}`" for name in needs.extras),
        *(["knows the final class count"] if needs.final_class_count else []),
        *(["does ordinary few-shot classification"] if method.learns_episodes() else []),
    ]
    yield f"In short: {'; '.join(facts)}."
    brought = _bringing(needs.extras, registry)
    yield _shell(f"fscil-bench run --method {plugin.name}{brought} --protocol glyphs --seeds 0-9")
    yield from _parameters(plugin)
    if method.tuning_grid:
        tried = (
            f"`{name}`: {', '.join(f'`{value}`' for value in values)}"
            for name, values in method.tuning_grid.items()
        )
        yield f"`fscil-bench tune` tries {'; '.join(tried)}."
    yield from _counterparts(plugin, registry)


def _bringing(extras: tuple[str, ...], registry: Registry) -> str:
    """Return the option that names a representation with those tensors; "" if none is needed."""
    fit = (p.name for p in _plugins(registry, "representation") if {*extras} <= {*p.value.extras})
    return f" --representation {next(fit)}" if extras else ""


def _representation(plugin: Plugin, _: Registry) -> Iterator[str]:
    value = plugin.value
    if value.final_class_count:
        yield "It knows the final class count; tables flag it."
    if value.extras:
        yield f"Tensors for methods: {', '.join(f'`{name}`' for name in value.extras)}."
    yield _shell(f"fscil-bench run --method ncm --representation {plugin.name} --protocol glyphs")
    yield from _parameters(plugin)


def _backbone(plugin: Plugin, _: Registry) -> Iterator[str]:
    backbone: type[Backbone] = plugin.value
    name = f"{plugin.name}:NAME" if backbone.variants else plugin.name
    yield _shell(f"fscil-bench run --method ncm --backbone {name} --protocol cifar100")
    yield f"Pooling: {', '.join(f'`{pool}`' for pool in backbone.pools)}."
    if not backbone.variants:
        own = backbone()
        transform, weights = own.transform, own.published
        yield f"Features: {own.dim} dimensions." + (
            f" Input: {transform.size} × {transform.size} pixels." if transform else ""
        )
        yield f"Weights it can start from: {weights.title if weights else 'none'}."


def _report(plugin: Plugin, _: Registry) -> Iterator[str]:
    report: type[Report] = plugin.value
    asks = report.requests is not Report.requests
    yield _shell(f"fscil-bench report {plugin.name} --protocol glyphs{' --run-missing' * asks}")
    if asks:
        yield "With `--run-missing` it makes the runs that it needs and that are not stored."
    yield from _parameters(plugin)


def _protocol(plugin: Plugin, registry: Registry) -> Iterator[str]:
    protocol: Protocol = plugin.value
    recipe = protocol.recipe
    facts = {
        "data set": f"`{protocol.dataset}`",
        "base classes": str(protocol.base_classes),
        "sessions": f"{protocol.sessions} of {protocol.way_text} new classes",
        "images of a new class": str(protocol.shot),
        "shots": "published" if protocol.split == "canonical" else "drawn by seed",
        "backbone": f"`{protocol.backbone}`, pre-training {protocol.pretraining}",
        "images": f"{protocol.images.size} pixels",
        "recipe": f"{recipe.epochs} epochs, batch {recipe.batch_size}, rate {recipe.lr}, "
        f"{recipe.schedule}, {', '.join(recipe.augment) or 'no augmentation'}",
        "checkpoint": recipe.checkpoint,
    }
    yield _table(["", ""], facts.items())
    yield _shell(f"fscil-bench run --method ncm,ldc --protocol {plugin.name} --seeds 0-9")
    reader = registry.plugins["data set"].get(protocol.dataset)
    if reader is not None:
        yield f"## The data set\n\n{prose(inspect.getdoc(reader.value) or '')}"
    yield f"## The file\n\n```toml\n{plugin.file.read_text(encoding='utf-8').strip()}\n```"
    stated = [
        (f"[`{other.name}`](../{kind}s/{other.name}.md)", _values(other.value.published[name]))
        for kind in ("method", "representation")
        for other in _plugins(registry, kind)
        for name in protocol.published_as
        if name in other.value.published
    ]
    if stated:
        yield f"## Parameters that papers state for it\n\n{_table(['', 'Parameters'], stated)}"
    rows = _published()[plugin.name]
    if rows:
        section = published_section("published", protocol, rows)
        yield markdown(Document("Published", section.parts)).replace("# ", "## ", 1).strip()


def _parameters(plugin: Plugin) -> Iterator[str]:
    """Yield a table of the parameters, and of those that papers state for a protocol."""
    schema = TypeAdapter(plugin.value.Params).json_schema()
    about, meanings = _meanings(plugin.value.Params)
    rows = [
        [f"`{name}`", kind_of(field), _default(field.get("default")), prose(meanings.get(name, ""))]
        for name, field in schema.get("properties", {}).items()
    ]
    if rows:
        told = _table(["Parameter", "Type", "Default", ""], rows)
        option = "--set-representation" if plugin.kind == "representation" else "--set"
        sets = f"`{option} name=value` sets one of them."
        yield f"## Parameters\n\n{prose(about)}\n\n{sets}\n\n{told}"
    published = getattr(plugin.value, "published", None)
    if isinstance(published, Mapping) and published:
        stated = (
            (f"[`{name}`](../protocols/{name}.md)", _values(values))
            for name, values in published.items()
        )
        yield f"## Published for a protocol\n\n{_table(['Protocol', 'Parameters'], stated)}"


def kind_of(schema: Mapping[str, Any]) -> str:
    """Return in words what a parameter may be, of its JSON schema."""
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{value}`" for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " or ".join(map(kind_of, schema["anyOf"]))
    kind = {"string": "text", "boolean": "true or false", "null": "none"}.get(
        schema.get("type", ""), schema.get("type", "any")
    )
    if kind == "array":
        each = schema.get("items") or {}
        return f"several: {kind_of(each)}" if each else "several"
    limits = [f"{sign} {schema[key]}" for key, sign in NUMBERS.items() if key in schema]
    return f"{kind} {', '.join(limits)}".strip()


def _default(value: Any) -> str:
    return f"`{value}`" if value != "" else "empty"


def _meanings(params: type) -> tuple[str, dict[str, str]]:
    """Return what docstrings say of a dataclass with those it inherits from, and of each field."""
    about = ""
    found: dict[str, str] = {}
    for each in reversed(params.__mro__[:-1]):
        doc = griffe.Docstring(inspect.cleandoc(each.__doc__ or ""))
        for section in griffe.parse_google(doc, warn_missing_types=False, warnings=False):
            if section.kind is griffe.DocstringSectionKind.attributes:
                found |= {item.name: item.description for item in section.value}
            elif section.kind is griffe.DocstringSectionKind.text and each is params:
                about = section.value
    return about, found


def _counterparts(plugin: Plugin, registry: Registry) -> Iterator[str]:
    """Yield the published rows that a method is meant to reproduce."""
    lines = []
    for other in _plugins(registry, "protocol"):
        if published_name(other.value) != other.name:
            continue
        for row in _published()[other.name]:
            if row.counterpart and row.counterpart.method == plugin.name:
                first, *_, last = row.accuracies(other.value.sessions)
                chosen = "on test data" if row.test_chosen else ""
                link = f"[`{other.name}`](../protocols/{other.name}.md)"
                lines.append(
                    (link, escape_markdown(row.method), f"{first:.2f}", f"{last:.2f}", chosen)
                )
    if lines:
        heads = ["Protocol", "Published row", "Session 0", "Last session", "Epoch chosen"]
        yield f"## Published rows of it\n\nNot measured here.\n\n{_table(heads, lines)}"


def _measures() -> str:
    """Return the page of every measure with its formula."""
    rows = (
        (
            f"`{each.key}`",
            escape_markdown(each.heading),
            each.unit,
            each.better,
            escape_markdown(each.formula),
        )
        for each in MEASURES.values()
    )
    heads = ["Key in frames", "Heading", "Unit", "Good end", "Formula"]
    told = f"{escape_markdown(plain(ACCURACY))} {escape_markdown(plain(INTERVAL))}"
    return f"# Measures\n\n{told}\n\n{_table(heads, rows)}\n"


def _commands() -> str:
    """Return the page of all commands with their options."""
    root = typer.main.get_command(app)
    parts = ["# Command line", prose(inspect.cleandoc(root.help or ""))]
    for words, command in _leaves(root, "fscil-bench"):
        rows = (
            (", ".join(f"`{name}`" for name in each.opts), prose(getattr(each, "help", "") or ""))
            for each in command.params
        )
        about = prose(inspect.cleandoc(command.help or ""))
        parts += [f"## {words}", about, _table(["", ""], rows)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _leaves(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for name, each in sorted((inner or {}).items()):
        yield from _leaves(each, f"{words} {name}")


def _examples() -> str:
    """Return the page of the scripts in `examples/`, in the order of its README."""
    about = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    parts = [re.sub(r"\((\w+)\.py\)", r"(#\1py)", about).strip()]
    for name in dict.fromkeys(re.findall(r"\((\w+\.py)\)", about)):
        text = (ROOT / "examples" / name).read_text(encoding="utf-8")
        told = ast.get_docstring(ast.parse(text)) or ""
        parts += [f"## {name}", prose(told), f"```python\n{text.strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def _shell(command: str) -> str:
    return f"```\n{command}\n```"
