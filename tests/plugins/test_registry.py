from __future__ import annotations

from pathlib import Path

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Registry, load_registry

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
    assert {"ncm", "finetune", "ldc"} <= set(registry.names("method"))
    assert "cosine" in registry.names("representation")
    assert {"glyphs", "tiny_imagenet100", "tiny_imagenet200"} <= set(registry.names("protocol"))
    assert {"glyphs", "tiny_imagenet"} <= set(registry.names("data set"))
    assert "main-table" in registry.names("report")


def test_a_file_brings_a_method(tmp_path: Path) -> None:
    registry = load_registry((plugin_file(tmp_path, "mine"),))
    plugin = registry.get("method", "mine")
    assert plugin.value.__doc__ == "A method of somebody's."
    assert "mine" not in load_registry().names("method"), "and leaves no trace"


def test_the_same_file_twice_is_one_plugin(tmp_path: Path) -> None:
    file = plugin_file(tmp_path, "mine")
    assert "mine" in load_registry((file, file)).names("method")


def test_a_collision_names_both_files(tmp_path: Path) -> None:
    file = plugin_file(tmp_path, "ncm")
    with pytest.raises(UsageError, match=r"two plug-ins define the method 'ncm': .*ncm.py.*ncm.py"):
        load_registry((file,))


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="unknown method 'ldk'; did you mean 'ldc'"):
        load_registry().get("method", "ldk")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def broken(:\n", "line 1"),
        ("x = 1\nraise RuntimeError('no')\n", "line 2: RuntimeError: no"),
        ("import no_such_module_here\n", "No module named"),
        ("x = 1\n", "defines no plug-in"),
        (METHOD.format(name="m").replace('    name = "m"\n', ""), "has no `name`"),
        (
            METHOD.format(name="m").replace("    def scores(self, queries): pass\n", ""),
            "no plug-in",
        ),
    ],
)
def test_a_file_that_is_no_plugin_is_explained(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        load_registry((plugin_file(tmp_path, "bad", text),))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.py: no such plug-in file"):
        load_registry((tmp_path / "none.py",))


def test_a_protocol_may_be_a_file() -> None:
    toml = Path(__file__).parents[1] / "toy" / "toy.toml"
    protocol, folder = Registry().protocol(str(toml))
    assert protocol.name == "toy"
    assert folder == toml.parent


def test_a_protocol_file_of_anothers_name_is_refused(tmp_path: Path) -> None:
    registry = load_registry()
    own = registry.get("protocol", "glyphs").file
    assert registry.protocol(str(own))[0].name == "glyphs", "its own file is no other protocol"
    changed = tmp_path / "my.toml"
    changed.write_text(own.read_text().replace("epochs = 10", "epochs = 11"))
    with pytest.raises(UsageError, match=r"my\.toml: name = 'glyphs' is the name of another"):
        registry.protocol(str(changed))


@pytest.mark.parametrize("name", ["all", "all-frozen", "m" * 101])
def test_a_name_that_the_command_line_or_a_file_system_cannot_take_is_refused(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METHOD.format(name=name))
    with pytest.raises(UsageError, match=r"mine.py: the method Mine is named .* at most 100"):
        load_registry((file,))
