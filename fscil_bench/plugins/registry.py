"""Name -> plug-in: found in the project's folders, in entry points, and in files given by path."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from fscil_bench.backbone import Backbone, Reading
from fscil_bench.errors import FscilError, UsageError, nearest
from fscil_bench.plugins.contract import Contract
from fscil_bench.plugins.digest import FOLDERS, source_digest
from fscil_bench.protocol import Protocol, load_protocol
from fscil_bench.spec import digest_of

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
"""What a plug-in may be called: names become parts of paths and of commands."""
GROUPS: Mapping[str, Callable[[Any], bool]] = {
    "all-frozen": lambda method: not method.needs.images,
    "all-images": lambda method: bool(method.needs.images),
    "all": lambda _: True,
}
"""Words that stand for many methods -> which of them."""

DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Names that Windows keeps for devices, with any ending."""

LONGEST_NAME = 100
"""Characters of a plug-in's name, which names folders and files too."""
FILE = "file"
"""The origin of a plug-in that a user gave by its path."""


@dataclass(frozen=True)
class Plugin:
    """A registered thing: its kind, its name, the class or protocol itself, and its file.

    `bound` is the file that brought a class, and the name that it has there.
    """

    kind: str
    name: str
    value: Any
    file: Path
    origin: str
    bound: tuple[Path, str] | None = None

    def digest(self) -> str:
        """Return the digest of what decides what the plug-in does.

        A class: its code with all that it refers to, wherever that lies. A protocol: its values.
        An edit after the first call does not count: what is loaded stays as it was, too.
        """
        return self._digest

    @cached_property
    def _digest(self) -> str:
        if isinstance(self.value, Protocol):
            return digest_of(self.value.model_dump())
        file, name = self.bound or (self.file, self.value.__qualname__.partition(".")[0])
        return source_digest(file.resolve(), name, self.beside)

    @property
    def title(self) -> str:
        """What tables and figures call it."""
        return getattr(self.value, "title", "") or self.name

    @property
    def bibtex(self) -> str:
        """BibTeX of the paper that it comes from; empty without one."""
        return inspect.cleandoc(getattr(self.value, "bibtex", ""))

    @property
    def citation(self) -> str:
        r"""The key that `\cite` takes; empty without a paper."""
        found = re.match(r"@\w+\{\s*([^\s,]+)", self.bibtex)
        return found[1] if found else ""

    @property
    def where(self) -> str:
        """Where it is defined, for messages."""
        owner = f"class {self.place[1]}, " if self.place[1] else ""
        return f"{self.file} ({owner}{self.origin})"

    @property
    def beside(self) -> bool:
        """Whether it may import what lies beside its file, as one given by its path may."""
        return self.origin == FILE

    @property
    def place(self) -> tuple[Path, str]:
        """Where it is defined: a file, and in it a class (a protocol is a file)."""
        name = getattr(self.value, "__qualname__", "")
        return self.file.resolve(), self.bound[1] if self.bound and "<locals>" in name else name


@dataclass
class Registry:
    """All plug-ins by kind and name."""

    plugins: dict[str, dict[str, Plugin]] = field(default_factory=dict)

    def add(self, plugin: Plugin) -> None:
        """Register a plug-in.

        Raises:
            UsageError: another one of that kind has the name, but for case, or it is no name of a
                folder on every system.
        """
        known = self.plugins.setdefault(plugin.kind, {})
        other = known.get(plugin.name)
        if other is not None and other.place != plugin.place:
            raise UsageError(
                f"two plug-ins define the {plugin.kind} {plugin.name!r}: {other.where} and "
                f"{plugin.where}; rename one of them"
            )
        self._check_storable(plugin.kind, plugin.name, plugin.where)
        known[plugin.name] = plugin

    def _check_storable(self, kind: str, name: str, where: str) -> None:
        """Refuse a name that is no folder of its own on every system."""
        if DEVICE.fullmatch(name) or name.endswith("."):
            raise UsageError(
                f"{where}: the {kind} is named {name!r}, which Windows takes for a device or "
                "shortens; results are filed by name: choose another"
            )
        for other in self.plugins.get(kind, {}).values():
            if other.name != name and other.name.lower() == name.lower():
                raise UsageError(
                    f"{where}: the {kind} {name!r} has the name of {other.name!r}, "
                    f"{other.where}, but for upper and lower case, which many systems do not tell "
                    "apart; rename one of them"
                )

    def get(self, kind: str, name: str) -> Plugin:
        """Return the plug-in of that kind and name.

        Raises:
            UsageError: there is none; the message names the nearest.
        """
        known = self.plugins.get(kind, {})
        if name not in known:
            hint = "; one in a file of yours is given with --plugin FILE.py"
            if kind == "protocol":
                hint = "; one in a file of yours is given by its path, ending in .toml"
            told = self.other_kind(name) or nearest(name, known)
            raise UsageError(f"unknown {kind} {name!r}; {told}{hint}")
        return known[name]

    def other_kind(self, name: str) -> str:
        """Return a phrase on what a name is that was given as another kind's; empty if nothing."""
        for kind in ("protocol", "method", "representation"):
            if name in self.plugins.get(kind, {}):
                return f"it is a {kind}: --{kind} {name}"
        return ""

    def names(self, kind: str) -> list[str]:
        """Return the sorted names of a kind."""
        return sorted(self.plugins.get(kind, {}))

    def protocol(self, name: str) -> tuple[Protocol, Path]:
        """Return a protocol by name, or from a TOML file given by path, with its folder.

        Raises:
            UsageError: no such protocol, or its file does not validate or has the name of another
                protocol.
        """
        if name.endswith(".toml"):
            path = Path(name)
            protocol = load_protocol(path, self._protocol_files())
            self._check_file(protocol, path)
            return protocol, path.parent
        plugin = self.get("protocol", name)
        return plugin.value, plugin.file.parent

    def backbone(self, name: str, reading: Reading = Reading()) -> tuple[Backbone, Plugin]:
        """Return a backbone by name, `name:variant` for one of many, and what brought it.

        Raises:
            UsageError: no such backbone, or it cannot be read so.
        """
        family, _, variant = name.partition(":")
        plugin = self.get("backbone", family)
        if plugin.value.variants != bool(variant):
            asked = f"name one of its networks, {family}:NAME" if not variant else "it is one alone"
            raise UsageError(f"backbone {name!r}: {asked}")
        return plugin.value(variant, reading), plugin

    def _protocol_files(self) -> dict[str, Path]:
        return {name: plugin.file for name, plugin in self.plugins.get("protocol", {}).items()}

    def _check_file(self, protocol: Protocol, path: Path) -> None:
        self._check_storable("protocol", protocol.name, str(path))
        known = self.plugins.get("protocol", {}).get(protocol.name)
        if known is not None and known.value != protocol:
            raise UsageError(
                f"{path}: name = {protocol.name!r} is the name of another protocol, {known.file}; "
                "results are filed by name: choose one of your own"
            )

    def add_module(self, module: ModuleType, origin: str) -> int:
        """Register the plug-ins that a module or package defines; return how many there are."""
        count = 0
        for name, value in vars(module).items():
            if inspect.isclass(value) and f"{value.__module__}.".startswith(f"{module.__name__}."):
                bound = (Path(module.__file__), name) if module.__file__ else None
                count += self.add_class(value, origin, bound)
        return count

    def add_class(self, value: type, origin: str, bound: tuple[Path, str] | None = None) -> int:
        """Register a class if it is a complete plug-in; return 1 if it is one."""
        if not issubclass(value, Contract) or inspect.isabstract(value):
            return 0
        file = Path(inspect.getfile(value))
        _check_declaration(value, file)
        self.add(Plugin(value.kind, value.name, value, file, origin, bound))
        return 1

    def add_protocols(self, folder: Path, origin: str) -> int:
        """Register every protocol TOML below a folder; return how many there are."""
        found = sorted(folder.rglob("*.toml"))
        files = [file for file in found if not _is_private(file.relative_to(folder).parts)]
        for file in files:
            protocol = load_protocol(file, self._protocol_files())
            self.add(Plugin("protocol", protocol.name, protocol, file, origin))
        return len(files)

    def add_protocol_file(self, file: Path) -> str:
        """Register a user's protocol TOML, in place of one of its name; return the name.

        Raises:
            UsageError: the file is missing or does not validate.
        """
        protocol = load_protocol(file, self._protocol_files())
        plugin = Plugin("protocol", protocol.name, protocol, file, FILE)
        self._check_storable("protocol", protocol.name, plugin.where)
        self.plugins.setdefault("protocol", {})[protocol.name] = plugin
        return protocol.name

    def add_file(self, file: Path) -> None:
        """Register the plug-ins of a Python file given by path.

        While it is imported, what lies beside it can be imported by its bare name.

        Raises:
            UsageError: the file is missing, cannot be imported, or defines no plug-in.
        """
        if not file.is_file():
            raise UsageError(f"{file}: no such plug-in file")
        digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:8]
        name = f"fscil_bench_plugin_{re.sub(r'[^A-Za-z0-9_]', '_', file.stem)}_{digest}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UsageError(f"{file}: a plug-in must be a Python file ending in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with _importable(file.resolve().parent, name):
                spec.loader.exec_module(module)
        except FscilError:
            raise
        except (Exception, SystemExit) as error:
            raise UsageError(f"{file}: cannot be imported: {_describe(error, file)}") from error
        if self.add_module(module, FILE) == 0:
            lacks = [
                f"class {value.__name__} lacks {', '.join(sorted(value.__abstractmethods__))}"
                for value in vars(module).values()
                if inspect.isabstract(value) and value.__module__ == module.__name__
            ]
            told = "; ".join(lacks) or (
                "a complete subclass of Method, Representation, Backbone, DatasetReader or Report "
                "with a `name` is one"
            )
            raise UsageError(f"{file}: defines no plug-in; {told}")


@contextmanager
def _importable(folder: Path, owner: str) -> Iterator[None]:
    """Let modules of a folder be imported by their bare names, and be filed under `owner` after.

    So nothing else can take them for its own, and two folders may hold modules of one name.
    """

    def lies_there(module: ModuleType) -> bool:
        # Not asked for, since a module may answer every name.
        held = getattr(module, "__dict__", {})
        places = [held.get("__file__"), *held.get("__path__", ())]
        return any(place and Path(place).is_relative_to(folder) for place in places)

    held = {info.name for info in pkgutil.iter_modules([str(folder)])} - {"fscil_bench"}
    hidden = {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] in held and not lies_there(module)
    }
    for name in hidden:
        del sys.modules[name]
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name not in before]:
            if lies_there(sys.modules[name]):
                _file_under(sys.modules.pop(name), f"{owner}.{name}")
        sys.modules.update(hidden)


def _file_under(module: ModuleType, name: str) -> None:
    """Give a module another name, under which its classes find it for their annotations."""
    for value in vars(module).values():
        if inspect.isclass(value) and value.__module__ == module.__name__:
            value.__module__ = name
    module.__name__ = name
    sys.modules[name] = module


@cache
def builtin_plugins() -> tuple[Plugin, ...]:
    """Return the plug-ins of the project's own folders and of installed entry points."""
    registry = Registry()
    for folder in FOLDERS:
        for module in _modules(_imported(f"fscil_bench.{folder}")):
            registry.add_module(module, "built in")
    registry.add_protocols(Path(str(package_folder("protocols"))), "built in")
    for folder in FOLDERS:
        for point in entry_points(group=f"fscil_bench.{folder}"):
            origin = f"package {point.dist.name}" if point.dist else "entry point"
            try:
                value = point.load()
            except (Exception, SystemExit) as error:
                raise UsageError(
                    f"entry point {point.name!r} of {origin} cannot be loaded: {error}"
                ) from error
            _add_loaded(registry, value, origin, point)
    return tuple(plugin for known in registry.plugins.values() for plugin in known.values())


def package_folder(folder: str) -> Path:
    """Return where one of the plug-in folders lies on disk."""
    package = importlib.import_module(f"fscil_bench.{folder}")
    return Path(next(iter(package.__path__)))


def load_registry(files: tuple[Path, ...] = ()) -> Registry:
    """Return a registry of all plug-ins, with those of `files` added.

    Raises:
        UsageError: a collision, or a file that is no plug-in.
    """
    registry = Registry()
    for plugin in builtin_plugins():
        registry.add(plugin)
    for file in files:
        registry.add_file(file)
    return registry


def expand_methods(asked: Iterable[str], registry: Registry) -> list[str]:
    """Return method names with the words for groups replaced, each once, the cheap ones first.

    Raises:
        UsageError: no method belongs to a group.
    """
    found: list[str] = []
    for word in asked:
        if word not in GROUPS:
            found.append(word)
            continue
        members = [registry.get("method", name) for name in registry.names("method")]
        # An interrupted series should hold as many rows as it can.
        members.sort(key=lambda plugin: _cost(plugin.value))
        chosen = [plugin.name for plugin in members if GROUPS[word](plugin.value)]
        if not chosen:
            raise UsageError(f"no registered method belongs to {word}")
        found += chosen
    return list(dict.fromkeys(found))


def _cost(method: Any) -> tuple[bool, bool, bool]:
    """Return what to sort methods by: images, then further views, then learning from base data."""
    return method.needs.images, bool(method.needs.base_views), method.has_pretraining()


def _add_loaded(registry: Registry, value: Any, origin: str, point: EntryPoint) -> None:
    count = 0
    if inspect.isclass(value):
        file, name = sys.modules[point.module].__file__, point.attr.partition(".")[0]
        count = registry.add_class(value, origin, (Path(file), name) if file else None)
    elif inspect.ismodule(value):
        count = registry.add_module(value, origin)
        for folder in getattr(value, "__path__", ()):
            count += registry.add_protocols(Path(folder), origin)
            for module in _modules(value):
                count += registry.add_module(module, origin)
    if count == 0:
        raise UsageError(f"{origin}: its entry point {value!r} brings no plug-in")


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    """Yield all modules and packages below a package, without those that begin with `_`."""
    for info in pkgutil.iter_modules(package.__path__):
        if not _is_private([info.name]):
            module = _imported(f"{package.__name__}.{info.name}")
            yield module
            if info.ispkg:
                yield from _modules(module)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except FscilError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"{type(error).__name__}: {error}"
        raise UsageError(f"the plug-in module {name} cannot be imported: {problem}") from error


def _is_private(parts: Iterable[str]) -> bool:
    return any(part.startswith("_") for part in parts)


def _check_declaration(value: type[Contract], file: Path) -> None:
    """Refuse a class whose name or parameters cannot be used."""
    where = f"{file}: the {value.kind} {value.__name__}"
    name = getattr(value, "name", None)
    if not isinstance(name, str):
        raise UsageError(f"{where} has no `name`; give it one")
    if not re.fullmatch(NAME, name):
        raise UsageError(f"{where} is named {name!r}; use letters, digits, `_`, `.` and `-`")
    if name in GROUPS or len(name) > LONGEST_NAME:
        raise UsageError(
            f"{where} is named {name!r}; {', '.join(GROUPS)} stand for groups of methods, and a "
            f"name has at most {LONGEST_NAME} characters"
        )
    if not is_dataclass(value.Params):
        raise UsageError(f"{where}: `Params` must be a dataclass")
    try:
        value.check_declaration()
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _describe(error: BaseException, file: Path) -> str:
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    trace = error.__traceback__
    line = None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    place = f"line {line}: " if line else ""
    return f"{place}{type(error).__name__}: {error}"
