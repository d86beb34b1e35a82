"""The digest of the code that decides a result: of a plug-in, and of what the engine runs.

From a definition the names it refers to are followed, however deep and into whatever file of the
project, and the syntax trees met on the way are hashed in the order of the references. Each name is
replaced by the number of the definition it leads to, so that it does not count where a definition
lies, while two helpers of one name cannot be taken for each other.

Counted is what is executed. Not counted are docstrings, comments, formatting, annotations (but
whether an attribute of a class is a field), import lines and their aliases, titles and citations of
classes (`SHOWN`), the texts of raised errors, logging, stubs (`overload`), what a file does as a
script, and the names of files and folders.

What a file does when it is imported, beyond binding names, counts as soon as anything of it does,
and so it does for the files of a plug-in's project that this file imports, and for the packages
that they lie in. Doubtful statements are taken to act: a decorator that is not known to be
harmless, an assignment to an attribute or item, a call of the project's own code.

Not seen are code found by a string at run time (`import_module`, `getattr` with a name that is
computed), annotations that decide (read by a decorator or a library), and files that code reads.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from fscil_bench.errors import UsageError

ENGINE = Path(__file__).parents[1]
FOLDERS = ("methods", "protocols", "reports", "backbones")
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

SHOWN = {"title", "bibtex", "mean_over_images", "alarms"}
"""Attributes of a class that are only shown, or say what is refused."""
UNCOUNTED = {"annotation", "ctx", "kind", "returns", "simple", "type_comment", "type_params"}
"""Fields of syntax nodes; `kind` is how a string is written, `simple` whether a target is bare."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*DEFINITIONS, *COMPREHENSIONS, ast.Lambda)

BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.ExceptHandler, ast.match_case)
"""What may or may not be executed, so that it counts which imports stand there."""
IMPORTS = (ast.Import, ast.ImportFrom)
PURE = {
    *("abstractmethod", "cache", "cached_property", "classmethod", "contextmanager", "dataclass"),
    *("deleter", "enable_grad", "field_validator", "final", "getter", "inference_mode"),
    *("lru_cache", "model_validator", "no_grad", "overload", "override", "property"),
    *("runtime_checkable", "setter", "staticmethod", "total_ordering", "wraps"),
}
"""Decorators of libraries that do no more than wrap what they decorate."""
DEEPEST = 10_000
"""Calls within one another while a tree is written: Python parses some 3000 nested expressions."""

Chain = tuple[str, ...]
"""A name with the attributes asked of it: ("np", "linalg", "norm")."""


class Import(NamedTuple):
    """What a name is imported from: dots, module, and the name there (None: the module itself)."""

    level: int
    module: str
    name: str | None


class Bound(NamedTuple):
    """An import in a block: the name that it binds there, and to what."""

    name: str
    imported: Import


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
    def parts(self) -> list[str | Chain | Bound]:
        """The normalised tree: text, and between it the names that are referred to."""
        writer = _Writer([])
        with _nesting(DEEPEST):
            for base in self.owner.bases if self.owner else ():
                writer.write(base)
            writer.write(self.node, in_class=self.owner is not None)
        return writer.parts

    @cached_property
    def evaluates(self) -> bool:
        """Whether it matters what was done before it."""
        if isinstance(self.node, FUNCTIONS):
            defaults = (*self.node.args.defaults, *self.node.args.kw_defaults)
            return bool(defaults or self.node.decorator_list)
        return not isinstance(getattr(self.node, "value", None), ast.Constant)


@dataclass(frozen=True)
class Module:
    """A parsed file.

    Attributes:
        statements: all that stand at its top, but for imports and docstrings.
        defined: name (for what a class defines, `Class.name`) -> the statements that bind it.
        imports: name -> what it is imported from, of all branches.
        stars: the modules of star imports.
        lines: its imports, and the statements, in the order in which they are executed.
    """

    statements: list[Statement] = field(default_factory=list)
    defined: dict[str, list[Statement]] = field(default_factory=dict)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)
    lines: list[Import | Statement] = field(default_factory=list)

    def is_rebinding(self, statement: Statement) -> bool:
        """Tell whether it binds a name that others of the module's statements bind, too."""
        return any(len(self.defined[name]) > 1 for name in _bound(statement.node))

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
    """Return 16 hexadecimal digits for what a file binds to `name` at its top.

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

    def numbered(found: Definition) -> str:
        place = (found.file, found.statement)
        if place not in numbers:
            numbers[place] = len(numbers)
            waiting.append(found)
        return f"#{numbers[place]}.{found.name}"

    def count(parts: Iterable[str | Definition]) -> None:
        text = [part if isinstance(part, str) else numbered(part) for part in parts]
        if text:  # so that it does not count in how many files things lie
            result.update("\0".join([*text, "\1"]).encode())

    for file in dict.fromkeys(file for file, _ in roots):
        count(sources.started(file))
    for current in waiting:  # grows while it is gone through
        effects = [*sources.started(current.file), *sources.started_in(*current[:2])]
        count([*effects, *sources.resolved(current.file, current.statement)])
    files = dict.fromkeys(file for file, _ in numbers)
    for file in files:
        count(sources.order(file, numbers))
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
        self._started: set[Path] = set()

    def module(self, file: Path) -> Module:
        """Return what a file holds; nothing for a folder that is a package without one."""
        if file not in self._modules:
            is_folder = file.is_dir()
            self._modules[file] = Module() if is_folder else _parsed(file.read_bytes())
        return self._modules[file]

    def definition(self, file: Path, name: str) -> list[Definition]:
        """Return what binds a root's name."""
        targets = self._global(file, name, set())
        found = [target for target in targets if isinstance(target, Definition)]
        if not found:
            raise UsageError(
                f"{file}: defines no {name!r} at its top, where a plug-in must stand so that its "
                "code can be told from what it was"
            )
        return found

    def started(self, file: Path) -> Iterator[Definition]:
        """Yield what acts when a file is imported for the first time, in the order it does."""
        if file in self._started:
            return
        self._started.add(file)
        own = self._is_own(file)
        for package in self._packages_above(file) if own else ():
            yield from self.started(package)
        for line in self.module(file).lines:
            if isinstance(line, Statement):
                if self._acts(file, line.node):
                    yield Definition(file, line, "")
            elif own:
                for loaded in self._loaded(file, line):
                    yield from self.started(loaded)

    def started_in(self, file: Path, statement: Statement) -> Iterator[Definition]:
        """Yield what acts when the imports within a statement are executed."""
        for imported in _loads(ast.walk(statement.node)) if self._is_own(file) else ():
            for loaded in self._loaded(file, imported):
                yield from self.started(loaded)

    def order(self, file: Path, numbers: Mapping[tuple[Path, Statement], int]) -> Iterator[str]:
        """Yield the order of what acts or binds a name again, and what lies in between."""
        module = self.module(file)
        between: list[int] = []
        for statement in module.statements:
            number = numbers.get((file, statement))
            if number is None:
                continue
            if module.is_rebinding(statement) or self._acts(file, statement.node):
                yield f"{sorted(between)}{number}"
                between = []
            elif statement.evaluates:
                between.append(number)

    def resolved(self, file: Path, statement: Statement) -> list[str | Definition]:
        """Return a statement's parts with names replaced by what they lead to."""
        found: list[str | Definition] = []
        for part in statement.parts:
            if isinstance(part, str):
                found.append(part)
            elif isinstance(part, Bound):
                targets = self._imported(file, part.imported, set())
                found.append(f"{part.name}=")
                found += [_stem(t) if isinstance(t, Path) else t for t in targets]
            else:
                found += self._reference(file, statement, part)
        return found

    def _is_own(self, file: Path) -> bool:
        """Tell whether a file is of a plug-in's project, and not of the engine."""
        folders = [self.packages[f"{ENGINE.name}.{folder}"] for folder in FOLDERS]
        inside = file.is_relative_to(self.engine)
        return not inside or any(file.is_relative_to(folder) for folder in folders)

    def _packages_above(self, file: Path) -> list[Path]:
        found: list[Path] = []
        for folder in file.parents:
            package = folder / "__init__.py"
            if not package.is_file() or not self._is_own(package):
                break
            found.append(package)
        return found[::-1]

    def _loaded(self, file: Path, imported: Import) -> list[Path]:
        """Return the files of its own project that an import executes."""
        source = self._place(file, imported)
        if source is None:
            return []
        inner = imported.name and self._submodule(source, imported.name)
        return [found for found in (source, inner) if found and self._is_own(found)]

    def _acts(self, file: Path, node: ast.stmt) -> bool:
        """Tell whether a statement at the top of a module does more than bind names."""
        return not _bound(node) or self._does(file, node)

    def _does(self, file: Path, node: ast.stmt) -> bool:
        within = list(_executed(node))
        if any(map(_is_doing, within)):
            return True
        return self._is_own(file) and any(self._registers(file, inner) for inner in within)

    def _registers(self, file: Path, node: ast.AST) -> bool:
        """Tell whether a node runs code that may file something elsewhere."""
        if isinstance(node, ast.Call):
            return self._is_projects(file, node.func)
        if isinstance(node, COMPREHENSIONS):
            calls = [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]
            return any(self._is_projects(file, call.func) for call in calls)
        if not isinstance(node, DEFINITIONS) or _is_stub(node):
            return False
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if _last_name(called) not in PURE or self._is_projects(file, called):
                return True
        if not isinstance(node, ast.ClassDef):
            return False
        return self._is_hooked(file, node, set()) or any(self._does(file, n) for n in node.body)

    def _is_projects(self, file: Path, node: ast.expr) -> bool:
        """Tell whether a name is bound by the plug-in's project."""
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute | ast.Subscript | ast.Call):
            inner = inner.func if isinstance(inner, ast.Call) else inner.value
        targets = self._global(file, inner.id, set()) if isinstance(inner, ast.Name) else []
        places = [t.file if isinstance(t, Definition) else t for t in targets]
        return any(isinstance(place, Path) and self._is_own(place) for place in places)

    def _is_hooked(self, file: Path, node: ast.ClassDef, seen: set[ast.ClassDef]) -> bool:
        """Tell whether a class or one that it inherits from hears of its subclasses."""
        if node in seen:
            return False
        seen.add(node)
        hooks = any(isinstance(m, FUNCTIONS) and m.name == "__init_subclass__" for m in node.body)
        if hooks or any(_last_name(word.value) != "ABCMeta" for word in node.keywords):
            return True
        for base in node.bases:
            targets = (
                self._reference(file, Statement(node), chain) if (chain := _chain(base)) else ()
            )
            for found in targets:
                if isinstance(found, Definition) and self._is_own(found.file):
                    inner = found.statement.node
                    if not isinstance(inner, ast.ClassDef) or self._is_hooked(
                        found.file, inner, seen
                    ):
                        return True
        return False

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
    nodes = ast.parse(content).body
    again = {name for node in nodes if not isinstance(node, IMPORTS) for name in _named(node)}
    for node in nodes:
        statement = Statement(node)
        if not isinstance(node, DEFINITIONS) and not _is_script(node):
            within = list(_executed(node))
            _imports(within, module.imports)
            module.stars.extend(_stars(within))
            if not _is_for_types(node):
                module.lines.extend(_loads(within))
        is_bound_again = isinstance(node, IMPORTS) and not again.isdisjoint(_imports([node], {}))
        if _is_empty(node) and not is_bound_again:
            continue
        module.lines.append(statement)
        module.statements.append(statement)
        for name in _bound(node):
            module.defined.setdefault(name, []).append(statement)
        if isinstance(node, ast.ClassDef):
            for member in filter(lambda m: not _is_stub(m), node.body):
                for name in _bound(member):
                    found = module.defined.setdefault(f"{node.name}.{name}", [])
                    found.append(Statement(member, node))
    return module


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a statement and what is executed with it, which bodies of functions are not."""
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        yield inner
        if not isinstance(inner, SCOPES):
            waiting += reversed(list(ast.iter_child_nodes(inner)))


def _named(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds, but for imports."""
    for inner in _executed(node):
        if isinstance(inner, DEFINITIONS):
            yield inner.name
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id


def _bound(node: ast.stmt) -> dict[str, None]:
    """Return the names that a statement binds, or whose attributes or items it sets."""
    found: dict[str, None] = {}
    for inner in _executed(node):
        if isinstance(inner, DEFINITIONS):
            found[inner.name] = None
        elif isinstance(inner, IMPORTS):
            found.update(dict.fromkeys(_imports([inner], {})))
        elif isinstance(getattr(inner, "ctx", None), ast.Store | ast.Del):
            while isinstance(inner, ast.Attribute | ast.Subscript | ast.Starred):
                inner = inner.value
            if isinstance(inner, ast.Name):
                found[inner.id] = None
    return found


def _is_doing(node: ast.AST) -> bool:
    """Tell whether a node changes what others may hold, too."""
    if isinstance(node, ast.Attribute | ast.Subscript):
        return isinstance(node.ctx, ast.Store | ast.Del)
    if isinstance(node, ast.Expr):
        return not _is_bare_text(node) and not _is_logging(node)
    return isinstance(node, ast.AugAssign)


def _is_empty(node: ast.stmt) -> bool:
    """Tell whether nothing of a statement at the top of a module counts by itself."""
    if isinstance(node, ast.If) and (_is_for_types(node) or _is_script(node)):
        return True
    return isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) or any(
        is_such(node) for is_such in (_is_bare_text, _is_logging, _is_stub)
    )


def _is_for_types(node: ast.stmt) -> bool:
    """Tell whether a statement is executed by type checkers only."""
    return isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING" and not node.orelse


def _is_script(node: ast.stmt) -> bool:
    """Tell whether a statement is executed only when its file is run as a script."""
    return (
        isinstance(node, ast.If)
        and not node.orelse
        and ast.unparse(node.test) in ("__name__ == '__main__'", "'__main__' == __name__")
    )


def _is_stub(node: ast.AST) -> bool:
    return isinstance(node, FUNCTIONS) and "overload" in map(_last_name, node.decorator_list)


def _is_logging(node: ast.stmt) -> bool:
    """Tell whether a statement is a call of `logging` and nothing else."""
    inner: ast.AST = node.value if isinstance(node, ast.Expr) else node
    while isinstance(inner, ast.Attribute | ast.Call):
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return isinstance(node, ast.Expr) and isinstance(inner, ast.Name) and inner.id == "logging"


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_nothing(node: Any, in_class: bool) -> bool:
    """Tell whether a node can be left out; in a class a declaration without value is a field."""
    if isinstance(node, ast.Assign):
        return in_class and all(isinstance(t, ast.Name) and t.id in SHOWN for t in node.targets)
    if isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) or _is_bare_text(node):
        return True
    return isinstance(node, ast.stmt) and _is_stub(node)


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


def _loads(nodes: Iterable[ast.AST]) -> Iterator[Import]:
    """Yield the modules that some nodes import, by their full names."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(0, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            yield from (Import(node.level, node.module or "", name) for name in names)


def _stars(nodes: Sequence[ast.AST]) -> list[Import]:
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return [Import(n.level, n.module or "", "*") for n in imports if n.names[0].name == "*"]


@contextmanager
def _nesting(depth: int) -> Iterator[None]:
    """Let functions call one another that deep."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, depth))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@dataclass(frozen=True)
class _Writer:
    """Writes syntax trees as text and names, the same for all that means the same."""

    parts: list[str | Chain | Bound]

    def write(self, node: ast.AST, in_class: bool = False) -> None:
        """Write a node; `in_class` if it stands in the body of a class."""
        if isinstance(node, ast.Name | ast.Attribute) and self._reference(node):
            return
        if isinstance(node, ast.AnnAssign):
            node = _plain(node, in_class)
        self._text(f"({type(node).__name__}")
        if isinstance(node, ast.AnnAssign):
            # The one thing that dataclasses and pydantic take from an annotation alone.
            words = ast.dump(node.annotation)
            self._text(",".join(w for w in ("InitVar", "KW_ONLY") if w in words))
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
            item = _plain(item, in_class) if isinstance(item, ast.AnnAssign) else item
            if isinstance(item, IMPORTS) and isinstance(node, BLOCKS):
                for bound, found in _imports([item], {}).items():
                    self.parts.extend(Bound(bound, imported) for imported in found)
            if _is_nothing(item, in_class):
                continue
            if isinstance(item, ast.AST):
                self.write(item, in_class)
            else:
                self._text(repr(item))
            self._text(",")

    def _reference(self, node: ast.expr) -> bool:
        """Write a name with its attributes; False if it is an attribute of something else."""
        chain = _chain(node)
        if chain:
            self.parts.append(chain)
        return bool(chain)

    def _text(self, text: str) -> None:
        if self.parts and isinstance(self.parts[-1], str):
            self.parts[-1] += text
        else:
            self.parts.append(text)


def _plain(node: ast.AnnAssign, in_class: bool) -> ast.stmt:
    """Return an assignment without its annotation, unless that makes it a field of a class."""
    if in_class and "ClassVar" not in ast.dump(node.annotation):
        return node
    return ast.Assign([node.target], node.value) if node.value is not None else ast.Pass()


def _chain(node: ast.expr) -> Chain:
    """Return a name with its attributes; nothing if it is an attribute of something else."""
    chain = []
    while isinstance(node, ast.Attribute):
        chain.append(node.attr)
        node = node.value
    return (node.id, *reversed(chain)) if isinstance(node, ast.Name) else ()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
