from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import Registry, builtin_plugins, load_registry

TOY = Path(__file__).parents[1] / "toy" / "toy.toml"

METHOD = '''
from fscil_bench.method import Method

class Mine(Method):
    """A method of somebody's."""
    name = "{name}"
    def learn_base(self, base): pass
    def learn_session(self, session): pass
    def scores(self, queries): pass
    def state_dict(self): return {{}}
    def load_state_dict(self, state): pass
'''


def plugin_file(folder: Path, name: str, text: str | None = None) -> Path:
    path = folder / f"{name.replace('-', '_')}.py"
    path.write_text(METHOD.format(name=name) if text is None else text)
    return path


def test_the_projects_own_plugins_are_found_by_folder() -> None:
    registry = load_registry()
    for kind, names in {
        "method": {"ncm", "finetune", "ldc"},
        "representation": {"cosine"},
        "protocol": {"glyphs", "tiny_imagenet100", "tiny_imagenet200"},
        "data set": {"glyphs", "tiny_imagenet"},
        "report": {"main-table"},
    }.items():
        assert names <= set(registry.names(kind))
    with pytest.raises(UsageError, match="unknown method 'ldk'; did you mean 'ldc'"):
        registry.get("method", "ldk")


def test_a_file_brings_a_method(tmp_path: Path) -> None:
    file = plugin_file(tmp_path, "mine")
    plugin = load_registry((file, file)).get("method", "mine")
    assert plugin.value.__doc__ == "A method of somebody's."
    assert "mine" not in load_registry().names("method"), "and leaves no trace"


MINE = METHOD.format(name="mine")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def broken(:\n", "line 1"),
        ("x = 1\nraise RuntimeError('no')\n", "line 2: RuntimeError: no"),
        ("import no_such_module_here\n", "No module named"),
        ("x = 1\n", "defines no plug-in"),
        (
            "from fscil_bench.method import Method\nclass Half(Method):\n    name = 'half'\n"
            "    def learn_base(self, base): pass\n    def scores(self, queries): pass\n",
            "class Half lacks learn_session, load_state_dict, state_dict",
        ),
        (MINE.replace('    name = "mine"\n', ""), "has no `name`"),
        (MINE.replace("    def scores(self, queries): pass\n", ""), "no plug-in"),
        (MINE + '    pretrain_params = ("steps",)\n', "method Mine: pretrain_params names 'steps'"),
        (METHOD.format(name="ncm"), r"two plug-ins define the method 'ncm': .*ncm.py.*bad.py"),
        (
            MINE + MINE.replace("class Mine", "class Other"),
            r"define the method 'mine': .*bad\.py \(class Mine,.*\(class Other,",
        ),
        *(
            (METHOD.format(name=name), r"bad\.py: the method Mine is named .* at most 100")
            for name in ("all", "all-frozen", "m" * 101)
        ),
    ],
)
def test_a_file_that_is_no_plugin_is_explained(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        load_registry((plugin_file(tmp_path, "bad", text),))
    with pytest.raises(UsageError, match=r"none\.py: no such plug-in file"):
        load_registry((tmp_path / "none.py",))


def test_a_protocol_may_be_a_file_but_none_of_anothers_name(tmp_path: Path) -> None:
    protocol, folder = Registry().protocol(str(TOY))
    assert (protocol.name, folder) == ("toy", TOY.parent)
    registry = load_registry()
    own = registry.get("protocol", "glyphs").file
    assert registry.protocol(str(own))[0].name == "glyphs", "its own file is no other protocol"
    changed = tmp_path / "my.toml"
    changed.write_text(own.read_text().replace("epochs = 10", "epochs = 11"))
    with pytest.raises(UsageError, match=r"my\.toml: name = 'glyphs' is the name of another"):
        registry.protocol(str(changed))


KIND = '''
from abc import abstractmethod
from fscil_bench.plugins.contract import Contract

class Sampler(Contract):
    """A contract of somebody's own."""
    kind = "sampler"

    @abstractmethod
    def draw(self): ...

class Coin(Sampler):
    name = "coin"
    def draw(self): return 1
'''


def test_a_new_kind_of_plugin_needs_no_more_than_its_contract(tmp_path: Path) -> None:
    registry = load_registry((plugin_file(tmp_path, "coin", KIND),))
    assert registry.names("sampler") == ["coin"]


HELPED = """
from __future__ import annotations
import helper
from helper.deep import DEEP
from helper import Settings
""" + METHOD.replace('    name = "{name}"', '    name = "{name}"\n    Params = Settings')
HELPER = """
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
VALUE = {value}

@dataclass(frozen=True)
class Settings:
    steps: Number = {value}
Number = int
"""


def helped(folder: Path, name: str, value: int) -> Path:
    """Write a plug-in file with a package beside it that is called `helper`."""
    (folder / "helper").mkdir(parents=True)
    (folder / "helper" / "__init__.py").write_text(HELPER.format(value=value))
    (folder / "helper" / "deep.py").write_text(f"DEEP = {value}\n")
    return plugin_file(folder, name, HELPED.format(name=name))


def test_helpers_of_files_may_share_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = ModuleType("helper_of_others")
    monkeypatch.setitem(sys.modules, "helper_of_others", others)
    first, second = helped(tmp_path / "a", "first", 1), helped(tmp_path / "b", "second", 2)
    (second.parent / "helper_of_others.py").write_text("OWN = 1\n")
    second.write_text(second.read_text() + "\nfrom helper_of_others import OWN\n")
    path, known = list(sys.path), set(sys.modules)
    registry = load_registry((first, second))
    assert sys.path == path
    assert not [name for name in set(sys.modules) - known if name.startswith("helper")]
    assert sys.modules["helper_of_others"] is others, "hidden only while the file is imported"
    found = [registry.get("method", name) for name in ("first", "second")]
    modules = [sys.modules[plugin.value.__module__] for plugin in found]
    assert [(module.helper.VALUE, module.DEEP) for module in modules] == [(1, 1), (2, 2)]
    filled = [parse_params("it", plugin.value.Params, {"steps": "3"}) for plugin in found]
    assert [params.steps for params in filled] == [3, 3], "annotations of a helper are found"
    assert found[0].digest() != found[1].digest(), "the helpers count"


def test_what_a_file_does_with_classes_of_others_counts(tmp_path: Path) -> None:
    head, _, body = MINE.partition("class Mine")
    made = "class Mine" + body.replace("(self, queries): pass", "(self, queries): return s")
    made = "def make(s):\n" + "".join(f"    {line}\n" for line in made.splitlines())
    factory = f"{head}\n{made}    return Mine\n\n"
    deep = f"from near import SIGN\n{head}class Mine{body.replace('queries): pass', 'q): SIGN')}"
    found = set()
    for value in (1, 2):
        folder = tmp_path / str(value)
        (folder / "inner").mkdir(parents=True)
        (folder / "near.py").write_text(f"SIGN = {value}\n")
        (folder / "inner" / "deep.py").write_text(deep)
        (folder / "inner" / "plain.py").write_text(MINE)
        for name, text in (
            ("factory", f"{factory}Found = make({value})\n"),
            ("from_folder", "from inner.deep import Mine\n"),
            ("patched", f"from inner.plain import Mine\nMine.sign = {value}\n"),
        ):
            file = plugin_file(folder, name, text)
            found.add(load_registry((file,)).get("method", "mine").digest())
    assert len(found) == 6


def test_a_helper_may_answer_every_name(tmp_path: Path) -> None:
    (tmp_path / "answers.py").write_text("def __getattr__(name):\n    return 3\n")
    file = plugin_file(tmp_path, "mine", "import answers\n" + MINE)
    assert load_registry((file, file)).get("method", "mine").digest()
    assert "answers" not in sys.modules


def package(folder: Path, **files: str) -> None:
    """Write a package; `__` in the name of a file stands for a slash."""
    for name, text in files.items():
        file = folder.joinpath(*name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        for parent in file.relative_to(folder).parents:
            (folder / parent / "__init__.py").touch()


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of a package `brought_by_test` that an entry point names."""
    folder = tmp_path / "brought_by_test"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    point = importlib.metadata.EntryPoint("all", "brought_by_test", "fscil_bench.methods")
    real = importlib.metadata.entry_points

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        return [*real(group=group), *([point] if point.group == group else [])]

    monkeypatch.setattr("fscil_bench.plugins.registry.entry_points", entry_points)
    builtin_plugins.cache_clear()
    yield folder
    builtin_plugins.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == folder.name]:
        del sys.modules[name]


def test_plugins_are_found_at_any_depth(brought: Path) -> None:
    package(
        brought,
        near=METHOD.format(name="near"),
        family__deeper__far=METHOD.format(name="far"),
        _hidden__lost=METHOD.format(name="lost"),
        family___hidden=METHOD.format(name="lost"),
    )
    (brought / "family" / "__init__.py").write_text("from .deeper.far import Mine\n")
    for name, folder in (("far", "family"), ("lost", "_hidden")):
        toml = TOY.read_text().replace('name = "toy"', f'name = "{name}"')
        (brought / folder / "x.toml").write_text(toml)
    registry = load_registry()
    for kind, names in (("method", {"near", "far"}), ("protocol", {"far"})):
        assert set(registry.names(kind)) & {"near", "far", "lost"} == names
    assert registry.get("method", "far").file == brought / "family" / "deeper" / "far.py"


def test_a_module_that_cannot_be_imported_names_itself(brought: Path) -> None:
    package(brought, family__broken="import no_such_module_here\n")
    expected = "module brought_by_test.family.broken cannot be imported: ModuleNotFoundError: No"
    with pytest.raises(UsageError, match=expected):
        load_registry()


@pytest.mark.parametrize("name", ["con", "NUL", "aux.1", "com3", "dotted."])
def test_a_name_that_windows_cannot_store_is_refused(tmp_path: Path, name: str) -> None:
    file = plugin_file(tmp_path, "mine", METHOD.format(name=name))
    with pytest.raises(UsageError, match=f"the method is named '{name}', which Windows"):
        load_registry((file,))
    toml = tmp_path / "mine.toml"
    toml.write_text(TOY.read_text().replace('name = "toy"', f'name = "{name}"'))
    for named in (Registry().add_protocol_file, lambda path: Registry().protocol(str(path))):
        with pytest.raises(UsageError, match=rf"mine\.toml.*the protocol is named '{name}'"):
            named(toml)


def test_names_that_differ_by_case_alone_are_refused(tmp_path: Path) -> None:
    file = plugin_file(tmp_path, "mine", METHOD.format(name="LDC"))
    with pytest.raises(UsageError, match=r"the method 'LDC' has the name of 'ldc'.*case"):
        load_registry((file,))
    console = plugin_file(tmp_path, "console")  # begins like a device, and is none
    assert "console" in load_registry((console,)).names("method")
