"""The digest of the code that decides a result: of a plug-in, and of what the engine runs.

From a definition the names it refers to are followed, however deep and into whatever file of the
project, and the syntax trees met on the way are hashed in the order of the references. Each name is
replaced by the number of the definition it leads to, so that it does not count where a definition
lies, while two helpers of one name cannot be taken for each other.

Counted is what is executed. Not counted are docstrings, comments, formatting, annotations (but
whether an attribute of a class is a field), import lines and their aliases, titles and citations of
classes (`SHOWN`), the texts of raised errors, and the names of files and folders. Code found by a
string at run time (`import_module`, `getattr` with a name that is computed) is not seen, nor are
files that the code reads.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fscil_bench.errors import UsageError

ENGINE = Path(__file__).parents[1]
FOLDERS = ("methods", "protocols", "reports")
NOT_FOLLOWED: Mapping[str, str] = {
    "cli": "what is typed and shown",
    "data.cache": "what it decodes is told by its fingerprint, which is in the key",
    "errors": "what errors say",
    "options": "where things lie; what decides a result is in the specification",
    "params": "what parameters may be; what they are is in the key",
    "plugins": "how plug-ins are found",
    "progress": "what is shown meanwhile",
    "store": "keeps results and gives them back as they were",
}
"""Modules and packages of the engine that decide no result -> why."""

SHOWN = {"title", "bibtex"}
"""Attributes of a class that are only shown."""
UNCOUNTED = {"annotation", "ctx", "kind", "returns", "simple", "type_comment", "type_params"}
"""Fields of syntax nodes; `kind` is how a string is written, `simple` whether a target is bare."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
SCOPES = (*DEFINITIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

Chain = tuple[str, ...]
"""A name with the attributes asked of it: ("np", "linalg", "norm")."""


class Import(NamedTuple):
    """What a name is imported from: dots, module, and the name there (None: the module itself)."""

    level: int
    module: str
    name: str | None


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement at the top of a module, or (with its class as `owner`) of a class's body."""

    node: ast.stmt
    owner: ast.ClassDef | None = None

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        """The names that are imported somewhere within it."""
        return _imports(ast.walk(self.node), {})

    @cached_property
    def parts(self) -> list[str | Chain]:
        """The normalised tree: text, and between it the names that are referred to."""
        writer = _Writer([])
        for base in self.owner.bases if self.owner else ():
            writer.write(base)
        writer.write(self.node, in_class=self.owner is not None)
        return writer.parts


@dataclass(frozen=True)
class Module:
    """A parsed file.

    Attributes:
        statements: all that stand at its top, but for imports and docstrings.
        defined: name (for what a class defines, `Class.name`) -> the statements that bind it.
        imports: name -> what it is imported from, of all branches.
        stars: the modules of star imports.
        effects: statements that act when the module is imported, beyond binding names.
    """

    statements: list[Statement] = field(default_factory=list)
    defined: dict[str, list[Statement]] = field(default_factory=dict)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)
    effects: list[Statement] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Tell whether a name may be one of the module's."""
        return name in self.defined or name in self.imports or bool(self.stars)


class Definition(NamedTuple):
    """A name as it is bound by a statement of a file."""

    file: Path
    statement: Statement
    name: str


@dataclass(frozen=True)
class Trace:
    """What was met on the way from some definitions: the digest of it all, and the files."""

    digest: str
    files: frozenset[Path]


def source_digest(file: Path, name: str, beside: bool = False) -> str:
    """Return 16 hexadecimal digits for the top-level class or function `name` of a file.

    With `beside`, absolute imports find what lies beside the file, as they do for a plug-in given
    by its path; else only the engine, and the package that the file belongs to.
    """
    return trace([(file, name)], beside).digest


@cache
def engine_digest(*parts: Callable[..., Any]) -> str:
    """Return 16 hexadecimal digits for classes, functions and methods of the engine.

    Of a method (`Workbench.start`) its class counts as far as it refers to it through `self`.
    """
    plain = [inspect.unwrap(part) for part in parts]
    return trace([(Path(inspect.getfile(part)), part.__qualname__) for part in plain]).digest


def trace(roots: Sequence[tuple[Path, str]], beside: bool = False) -> Trace:
    """Follow definitions, given as file and name, through the project that the first lies in.

    Raises:
        UsageError: a file does not define the name.
    """
    sources = _Sources(roots[0][0], beside)
    waiting = [found for file, name in roots for found in sources.definition(file, name)]
    numbers = {(found.file, found.statement): i for i, found in enumerate(waiting)}
    result = hashlib.sha256()
    files: set[Path] = set()

    def numbered(found: Definition) -> str:
        place = (found.file, found.statement)
        if place not in numbers:
            numbers[place] = len(numbers)
            waiting.append(found)
        return f"#{numbers[place]}.{found.name}"

    for current in waiting:  # grows while it is gone through
        parts = sources.resolved(current.file, current.statement)
        if current.file not in files:
            files.add(current.file)
            parts = [*sources.effects(current.file), *parts]
        text = [part if isinstance(part, str) else numbered(part) for part in parts]
        result.update("\0".join([*text, "\1"]).encode())
    return Trace(result.hexdigest()[:16], frozenset(files))


class _Sources:
    """The files that a project's names lead to."""

    def __init__(self, file: Path, beside: bool) -> None:
        top = _top_package(file)
        self.engine = top if top is not None and top.name == ENGINE.name else ENGINE
        self.packages = {} if top is None else {top.name: top}
        self.packages[ENGINE.name] = self.engine
        for folder in FOLDERS:  # in a checkout they lie beside the engine, not in it
            inside = self.engine / folder
            place = inside if inside.is_dir() else self.engine.parent / folder
            self.packages[f"{ENGINE.name}.{folder}"] = place
        self.beside = file.parent if beside else None
        self._modules: dict[Path, Module] = {}

    def module(self, file: Path) -> Module:
        """Return what a file holds; nothing for a folder that is a package without one."""
        if file not in self._modules:
            is_folder = file.is_dir()
            self._modules[file] = Module() if is_folder else _parsed(file.read_bytes())
        return self._modules[file]

    def definition(self, file: Path, name: str) -> list[Definition]:
        """Return what binds a root's name."""
        found = [Definition(file, s, name) for s in self.module(file).defined.get(name, ())]
        if not found:
            raise UsageError(
                f"{file}: defines no {name!r} at its top, where a plug-in must stand so that its "
                "code can be told from what it was"
            )
        return found

    def effects(self, file: Path) -> list[Definition]:
        """Return what a module does when it is imported."""
        return [Definition(file, statement, "") for statement in self.module(file).effects]

    def resolved(self, file: Path, statement: Statement) -> list[str | Definition]:
        """Return a statement's parts with names replaced by what they lead to."""
        found: list[str | Definition] = []
        for part in statement.parts:
            found += [part] if isinstance(part, str) else self._reference(file, statement, part)
        return found

    def _reference(
        self, file: Path, statement: Statement, chain: Chain
    ) -> Iterator[str | Definition]:
        head, rest = chain[0], chain[1:]
        if statement.owner is not None and head in ("self", "cls") and rest:
            member = f"{statement.owner.name}.{rest[0]}"
            own = [Definition(file, s, member) for s in self.module(file).defined.get(member, ())]
            if own:
                for found in own:
                    yield from self._attributes(found, rest[1:])
                return
        targets = self._global(file, head, set())
        for imported in statement.imports.get(head, ()):
            targets += self._imported(file, imported, set())
        for target in dict.fromkeys(targets or [head]):
            yield from self._attributes(target, rest)

    def _attributes(self, target: str | Path | Definition, rest: Chain) -> Iterator[Any]:
        """Yield what is meant by attributes of a target; of a bare module, all that it holds."""
        if isinstance(target, Path) and not self._followed(target):
            yield ".".join(rest or (_stem(target),))
        elif isinstance(target, Path) and rest:
            for found in self._attribute(target, rest[0], set()):
                yield from self._attributes(found, rest[1:])
        elif isinstance(target, Path):
            yield from (Definition(target, s, "") for s in self.module(target).statements)
        elif isinstance(target, str):
            yield ".".join((target, *rest))
        else:
            yield target
            yield "".join(f".{name}" for name in rest)

    def _global(
        self, file: Path, name: str, seen: set[tuple[Path, str]]
    ) -> list[str | Path | Definition]:
        """Return what a module's name leads to; nothing if it is none of the module's."""
        module = self.module(file)
        if (file, name) in seen or not module.has(name):
            return []
        seen.add((file, name))
        found: list[str | Path | Definition] = [
            Definition(file, statement, name) for statement in module.defined.get(name, ())
        ]
        for imported in module.imports.get(name, ()):
            found += self._imported(file, imported, seen)
        for star in module.stars:
            source = self._place(file, star)
            if source is not None and self._followed(source):
                found += self._global(source, name, seen)
        return found

    def _imported(
        self, file: Path, imported: Import, seen: set[tuple[Path, str]]
    ) -> list[str | Path | Definition]:
        source = self._place(file, imported)
        if source is None:
            return [".".join(filter(None, (imported.module, imported.name)))]
        if imported.name is None:
            return [source]
        return self._attribute(source, imported.name, seen)

    def _attribute(
        self, source: Path, name: str, seen: set[tuple[Path, str]]
    ) -> list[str | Path | Definition]:
        if not self._followed(source):
            return [name]
        found = self._global(source, name, seen)
        if found:
            return found
        inner = self._submodule(source, name)
        return [inner] if inner else [*self._global(source, "__getattr__", seen), name]

    def _submodule(self, source: Path, name: str) -> Path | None:
        folder = source if source.is_dir() else source.parent
        if not source.is_dir() and source.name != "__init__.py":
            return None
        if folder == self.engine and name in FOLDERS:
            return _module_file(self.packages[f"{ENGINE.name}.{name}"], [])
        return _module_file(folder, [name])

    def _place(self, file: Path, imported: Import) -> Path | None:
        """Return the file of the module that is imported from, if it is of the project."""
        parts = imported.module.split(".") if imported.module else []
        if imported.level:
            return _module_file(file.parents[imported.level - 1], parts)
        for count in range(len(parts), 0, -1):
            folder = self.packages.get(".".join(parts[:count]))
            if folder is not None:
                return _module_file(folder, parts[count:])
        return _module_file(self.beside, parts) if self.beside else None

    def _followed(self, file: Path) -> bool:
        if not file.is_relative_to(self.engine):
            return True
        parts = file.relative_to(self.engine).with_suffix("").parts
        return not any(".".join(parts[:n]) in NOT_FOLLOWED for n in range(1, len(parts) + 1))


def _top_package(file: Path) -> Path | None:
    """Return the outermost package that a file belongs to."""
    found, folder = None, file.parent
    while (folder / "__init__.py").is_file():
        found, folder = folder, folder.parent
    return found


def _module_file(folder: Path, parts: Sequence[str]) -> Path | None:
    """Return the file of a module below a folder: `__init__.py`, `name.py`, or its folder alone."""
    place = folder.joinpath(*parts)
    for file in (place / "__init__.py", place.parent / f"{place.name}.py"):
        if file.is_file():
            return file
    return place if place.is_dir() else None


def _stem(file: Path) -> str:
    return file.parent.name if file.name == "__init__.py" else file.stem


@cache
def _parsed(content: bytes) -> Module:
    module = Module()
    for node in ast.parse(content).body:
        statement = Statement(node)
        if not isinstance(node, DEFINITIONS):
            within = list(_executed(node))
            _imports(within, module.imports)
            module.stars.extend(_stars(within))
            if _is_empty(node):
                continue
            if _acts(node, within):
                module.effects.append(statement)
        module.statements.append(statement)
        for name in _bound(node):
            module.defined.setdefault(name, []).append(statement)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                for name in _bound(member):
                    found = module.defined.setdefault(f"{node.name}.{name}", [])
                    found.append(Statement(member, node))
    return module


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and what is executed with it, which bodies of functions are not."""
    yield node
    if not isinstance(node, SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _executed(child)


def _bound(node: ast.stmt) -> dict[str, None]:
    """Return the names that a statement binds, or whose attributes or items it sets."""
    found: dict[str, None] = {}
    for inner in _executed(node):
        if isinstance(inner, DEFINITIONS):
            found[inner.name] = None
        elif isinstance(getattr(inner, "ctx", None), ast.Store | ast.Del):
            while isinstance(inner, ast.Attribute | ast.Subscript | ast.Starred):
                inner = inner.value
            if isinstance(inner, ast.Name):
                found[inner.id] = None
    return found


def _acts(node: ast.stmt, within: Sequence[ast.AST]) -> bool:
    """Tell whether a statement does more than bind names."""
    calls = any(isinstance(inner, ast.Expr) and not _is_bare_text(inner) for inner in within)
    return calls or not _bound(node)


def _is_empty(node: ast.stmt) -> bool:
    """Tell whether nothing of a statement counts: imports, bare strings, conditions on these."""
    if isinstance(node, ast.If):
        return all(map(_is_empty, [*node.body, *node.orelse]))
    if isinstance(node, ast.Try):
        handled = [inner for handler in node.handlers for inner in handler.body]
        return all(map(_is_empty, [*node.body, *handled, *node.orelse, *node.finalbody]))
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) or _is_bare_text(node)


def _is_nothing(node: Any, in_class: bool) -> bool:
    """Tell whether a node can be left out; in a class a declaration without value is a field."""
    if isinstance(node, ast.Assign):
        return in_class and all(isinstance(t, ast.Name) and t.id in SHOWN for t in node.targets)
    if isinstance(node, ast.AnnAssign):
        return node.value is None and not in_class
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) or _is_bare_text(node)


def _is_bare_text(node: Any) -> bool:
    """Tell whether a node is a docstring, of whatever it may be."""
    return isinstance(node, ast.Expr) and _is_text(node.value)


def _imports(nodes: Iterable[ast.AST], found: dict[str, list[Import]]) -> dict[str, list[Import]]:
    """Add what some nodes import, each once, to what was found before."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                imported = Import(0, alias.name if alias.asname else name, None)
                if imported not in found.setdefault(name, []):
                    found[name].append(imported)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                imported = Import(node.level, node.module or "", alias.name)
                if imported not in found.setdefault(name, []):
                    found[name].append(imported)
    return found


def _stars(nodes: Sequence[ast.AST]) -> list[Import]:
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return [Import(n.level, n.module or "", "*") for n in imports if n.names[0].name == "*"]


@dataclass(frozen=True)
class _Writer:
    """Writes syntax trees as text and names, the same for all that means the same."""

    parts: list[str | Chain]

    def write(self, node: ast.AST, in_class: bool = False) -> None:
        """Write a node; `in_class` if it stands in the body of a class."""
        if isinstance(node, ast.Name | ast.Attribute) and self._reference(node):
            return
        if isinstance(node, ast.AnnAssign) and not in_class:
            node = ast.Assign([node.target], node.value or node.target)
        self._text(f"({type(node).__name__}")
        if isinstance(node, ast.AnnAssign):
            # The one thing that dataclasses and pydantic take from an annotation alone.
            words = ast.dump(node.annotation)
            self._text(",".join(w for w in ("ClassVar", "InitVar", "KW_ONLY") if w in words))
        for name, value in ast.iter_fields(node):
            if name not in UNCOUNTED and value is not None and value != []:
                self._field(node, name, value)
        self._text(")")

    def _field(self, node: ast.AST, name: str, value: Any) -> None:
        self._text(f" {name}=")
        in_class = isinstance(node, ast.ClassDef) and name == "body"
        if isinstance(node, ast.Raise) and isinstance(value, ast.Call):
            value = ast.Call(value.func, [a for a in value.args if not _is_text(a)], value.keywords)
        for item in value if isinstance(value, list) else [value]:
            if _is_nothing(item, in_class):
                continue
            if isinstance(item, ast.AST):
                self.write(item, in_class)
            else:
                self._text(repr(item))
            self._text(",")

    def _reference(self, node: ast.expr) -> bool:
        """Write a name with its attributes; False if it is an attribute of something else."""
        chain = []
        while isinstance(node, ast.Attribute):
            chain.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        self.parts.append((node.id, *reversed(chain)))
        return True

    def _text(self, text: str) -> None:
        if self.parts and isinstance(self.parts[-1], str):
            self.parts[-1] += text
        else:
            self.parts.append(text)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
