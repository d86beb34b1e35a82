from __future__ import annotations

from pathlib import Path

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.protocol import Protocol, load_protocol

GOOD = """name = "p"
title = "P"
dataset = "toy"
classes = 10
base_classes = 4
way = 2
shot = 3
sessions = 3
backbone = "resnet20"

[images]
size = 16
mean = [0.5, 0.5, 0.5]
std = [0.2, 0.2, 0.2]

[recipe]
epochs = 5
"""


def write(folder: Path, text: str, name: str = "p.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_sessions_cut_the_classes(tmp_path: Path) -> None:
    protocol = load_protocol(write(tmp_path, GOOD))
    assert protocol.session_classes(0) == (0, 1, 2, 3)
    assert protocol.session_classes(1) == (4, 5)
    assert protocol.session_classes(3) == (8, 9)
    assert [protocol.classes_seen(t) for t in range(4)] == [4, 6, 8, 10]
    assert protocol.recipe.batch_size == 128, "defaults of the recipe are filled in"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("way = 2", "way = 3"), r"p.toml: .*4 \+ 3 × 3 = 13 exceeds classes = 10"),
        (("way = 2", 'way = "two"'), r"p.toml:6: way = 'two'"),
        (("shot = 3", "shots = 3"), r"p.toml:7: unknown key 'shots'; did you mean 'shot'"),
        (("shot = 3\n", ""), r"p.toml: key 'shot' is missing"),
        (("epochs = 5", "epochs = 0"), r"p.toml:17: recipe.epochs = 0"),
        (("epochs = 5", "epoch = 5"), r"p.toml:17: unknown key 'recipe.epoch'.*'epochs'"),
        (
            ("std = [0.2, 0.2, 0.2]", "std = [0.2, 0.2]"),
            r"p.toml:14: images.std has too few values",
        ),
        (("title =", "title"), r"p.toml:2: not valid TOML"),
        (("epochs = 5", 'epochs = 5\ncheckpoint = "best"'), r"holdout > 0"),
        (("epochs = 5", 'epochs = 5\nschedule = "cosine"\nmilestones = [3]'), "no effect"),
        (("backbone =", 'split = "canonical"\nbackbone ='), "canonical_shots"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    tmp_path: Path, change: tuple[str, str], expected: str
) -> None:
    assert change[0] in GOOD
    with pytest.raises(UsageError, match=expected):
        load_protocol(write(tmp_path, GOOD.replace(*change)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: no such protocol file"):
        load_protocol(tmp_path / "none.toml")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read as a protocol"):
        load_protocol(path)


def test_inherits_takes_the_rest_from_another_file(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    child = write(tmp_path, 'inherits = "p.toml"\nname = "q"\n[recipe]\nlr = 0.5\n', "q.toml")
    protocol = load_protocol(child)
    assert (protocol.name, protocol.way, protocol.recipe.epochs, protocol.recipe.lr) == (
        "q",
        2,
        5,
        0.5,
    )


def test_a_circle_of_inheritance_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 'inherits = "b.toml"\n', "a.toml")
    write(tmp_path, 'inherits = "a.toml"\n', "b.toml")
    with pytest.raises(UsageError, match="inherits from itself"):
        load_protocol(tmp_path / "a.toml")


def test_another_way_gives_as_many_sessions_as_the_classes_allow(tmp_path: Path) -> None:
    protocol = load_protocol(write(tmp_path, GOOD))
    changed = protocol.override(way=3)
    assert (changed.sessions, changed.classes_used) == (2, 10)
    assert protocol.override(base_classes=7, way=1).session_classes(3) == (9,)
    assert protocol.override(way=3, sessions=1).classes_used == 7
    with pytest.raises(UsageError, match="exceeds classes = 10"):
        protocol.override(way=3, sessions=3)


def test_overrides_are_validated(tmp_path: Path) -> None:
    protocol = load_protocol(write(tmp_path, GOOD))
    assert protocol.override(epochs=7).recipe.epochs == 7
    assert protocol.recipe.epochs == 5
    with pytest.raises(UsageError, match=r"recipe\.epochs = 0"):
        protocol.override(epochs=0)


def test_a_cut_that_leaves_no_session_is_refused(toy_protocol: Protocol) -> None:
    with pytest.raises(UsageError, match=r"4 base classes of 6 leave 2 for sessions of way = 3"):
        toy_protocol.override(way=3)
    with pytest.raises(UsageError, match="no session fits"):
        toy_protocol.override(base_classes=6)
    assert toy_protocol.override(way=3, sessions=0).sessions == 0, "asked for"


@pytest.mark.parametrize("order", ["seed:03", "seed:٣", "seed:-1"])
def test_a_class_order_has_one_spelling(toy_protocol: Protocol, order: str) -> None:
    with pytest.raises(UsageError, match="class_order"):
        toy_protocol.override(class_order=order)
