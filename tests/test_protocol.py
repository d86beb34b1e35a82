from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.fixture
def protocol(tmp_path: Path) -> Protocol:
    return load_protocol(write(tmp_path, GOOD))


def test_sessions_cut_the_classes(protocol: Protocol) -> None:
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
        (("epochs = 5", "epochs = -1"), r"p.toml:17: recipe.epochs = -1"),
        (("epochs = 5", "epochs = 0\nholdout = 0.1"), r"holdout = 0.1 has no meaning with epochs"),
        (("epochs = 5", "epoch = 5"), r"p.toml:17: unknown key 'recipe.epoch'.*'epochs'"),
        (
            ("std = [0.2, 0.2, 0.2]", "std = [0.2, 0.2]"),
            r"p.toml:14: images.std has too few values",
        ),
        (('dataset = "toy"', 'features = ""'), r"p.toml:3: features is empty; name a file"),
        (("title =", "title"), r"p.toml:2: not valid TOML"),
        (("epochs = 5", 'epochs = 5\ncheckpoint = "best"'), r"holdout > 0"),
        (("epochs = 5", 'epochs = 5\nschedule = "cosine"\nmilestones = [3]'), "no effect"),
        (("backbone =", 'split = "canonical"\nbackbone ='), "needs canonical_shots"),
        (("epochs = 5", "epochs = 5\nlr = nan"), "nan"),
        (("epochs = 5", "epochs = 5\nlr = inf"), "inf"),
        (("epochs = 5", "epochs = 5\nlr = 1e300"), r"p\.toml:18: recipe\.lr = 1e\+300"),
        (
            ("name", f"class_order = 'seed:{'1' * 5000}'\nname"),
            r"toml:1: class_order = .*5007 char",
        ),
        (("sessions = 3", "sessions = 4611686018427387904"), "less than or equal"),
        (('title = "P"', 'title = "\\u0000"'), "title = .* no Unicode text"),
        (("way = 2", "way = 2020-01-01"), "2020-01-01"),
        (('title = "P"', "title = 07:32:00"), "07:32:00"),
        (('"P"', f"{'[' * 20_000}{']' * 20_000}"), "nested too deeply|not valid TOML"),
        (("title", f"x = {'9' * 5000}\ntitle"), "p.toml"),
        (('name = "p"', 'inherits = "p.toml"'), "inherits from itself"),
    ],
)
def test_a_mistake_is_named_by_line(tmp_path: Path, change: tuple[str, str], expected: str) -> None:
    assert change[0] in GOOD
    with pytest.raises(UsageError, match=expected):
        load_protocol(write(tmp_path, GOOD.replace(*change)))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: no such protocol file"):
        load_protocol(tmp_path / "none.toml")
    path = tmp_path / "p.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read as a protocol"):
        load_protocol(path)


def test_inherits_takes_the_rest_from_another_file(tmp_path: Path, protocol: Protocol) -> None:
    child = write(tmp_path, 'inherits = "p.toml"\nname = "q"\n[recipe]\nlr = 0.5\n', "q.toml")
    found = load_protocol(child)
    assert (found.name, found.way, found.recipe.lr) == ("q", 2, 0.5)
    assert found.recipe.epochs == protocol.recipe.epochs


def test_another_way_gives_as_many_sessions_as_the_classes_allow(protocol: Protocol) -> None:
    changed = protocol.override(way=3)
    assert (changed.sessions, changed.classes_used) == (2, 10)
    assert protocol.override(base_classes=7, way=1).session_classes(3) == (9,)
    assert protocol.override(way=3, sessions=1).classes_used == 7
    assert protocol.override(way=7, sessions=0).sessions == 0, "asked for"


def test_overrides_may_be_numpy_numbers_and_lists(protocol: Protocol) -> None:
    changed = protocol.override(epochs=np.int64(9), lr=np.float32(0.5), milestones=[3, 4])
    assert (changed.recipe.epochs, changed.recipe.lr) == (9, 0.5)
    assert changed.recipe.milestones == (3, 4)
    assert type(changed.recipe.epochs) is int
    assert protocol.recipe.epochs == 5
    assert protocol.override(way=np.array([2, 4])).way == (2, 4)
    assert protocol.override(way=iter([2, 4])).sessions == 2


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"way": 3, "sessions": 3}, "exceeds classes = 10"),
        ({"way": 7}, "4 base classes of 10 leave 6 for sessions of way = 7"),
        ({"base_classes": 10}, "no session fits"),
        ({"epochs": -1}, r"recipe\.epochs = -1"),
        ({"epochs": 10**400}, "epochs: an integer of"),
        ({"epochs": 0, "holdout": 0.2}, r"holdout = 0\.2 has no meaning"),
        ({"epoch": 3}, r"called 'epoch'.* 'epochs'.*weight_decay"),
        ({"way": "1"}, "way = '1': input should be"),
        ({"way": "3,2"}, "way = '3,2': input should be"),
        ({"way": [2, "1"]}, "one for each session"),
        ({"sessions": "2"}, "sessions = '2': input should be"),
        ({"class_order": "seed:03"}, "class_order"),
        ({"class_order": "seed:٣"}, "class_order"),
        ({"class_order": "seed:-1"}, "class_order"),
    ],
)
def test_overrides_are_checked(protocol: Protocol, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        protocol.override(**changes)


def test_sessions_may_differ_in_way(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("way = 2", "way = [3, 2, 1]"))
    protocol = load_protocol(path)
    assert [protocol.classes_seen(t) for t in range(4)] == [4, 7, 9, 10]
    assert [protocol.session_classes(t) for t in (1, 2, 3)] == [(4, 5, 6), (7, 8), (9,)]
    assert (protocol.classes_used, protocol.way_text) == (10, "3, 2, 1")
    assert protocol.override(sessions=2).ways == (3, 2)
    assert protocol.override(way=[2, 4]).sessions == 2
    with pytest.raises(UsageError, match=r"way = \[3, 2, 1\] names 3 sessions, sessions = 2"):
        load_protocol(write(tmp_path, path.read_text().replace("sessions = 3", "sessions = 2")))
    with pytest.raises(UsageError, match=r"4 \+ 3 \+ 2 \+ 2 = 11 exceeds classes = 10"):
        protocol.override(way=(3, 2, 2))


def test_milestones_and_held_out_images_follow_the_epochs(protocol: Protocol) -> None:
    protocol = protocol.override(epochs=100, milestones=[60, 70])
    assert protocol.override(epochs=40).recipe.milestones == (24, 28)
    assert protocol.override(epochs=100).recipe.milestones == (60, 70)
    assert protocol.override(epochs=1).recipe.milestones == (1,)
    assert protocol.override(epochs=40, milestones=(39,)).recipe.milestones == (39,)
    assert protocol.override(epochs=0).recipe.milestones == ()
    assert protocol.override(epochs=0).override(epochs=5).recipe.milestones == ()
    recipe = protocol.override(holdout=0.1, checkpoint="best").override(epochs=0).recipe
    assert (recipe.epochs, recipe.holdout, recipe.checkpoint) == (0, 0.0, "last")


def test_files_of_an_inherited_protocol_are_found_beside_it(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    files = 'split = "canonical"\ncanonical_shots = "s.csv"\nclass_order = "list:o.txt"\n'
    parent = write(other, GOOD.replace("[images]", f"{files}[images]"))
    child = write(own, 'inherits = "p"\nname = "q"\n', "q.toml")
    protocol = load_protocol(child, {"p": parent})
    assert "canonical_shots" not in protocol.model_dump(), "its place is in no record"
    assert Protocol.model_validate(protocol.model_dump()).split == "canonical"
    assert (own / (protocol.canonical_shots or "")).resolve() == other / "s.csv"
    assert (own / protocol.class_order.removeprefix("list:")).resolve() == other / "o.txt"
    same = load_protocol(write(other, 'inherits = "p.toml"\nname = "q"\n', "q.toml"))
    assert (same.canonical_shots, same.class_order) == ("s.csv", "list:o.txt")
    with pytest.raises(UsageError, match=r"q.toml:1: inherits = 'p': no protocol of that name"):
        load_protocol(child)
