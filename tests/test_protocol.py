from __future__ import annotations

from pathlib import Path

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
        (("epochs = 5", "epochs = -1"), r"p.toml:17: recipe.epochs = -1"),
        (("epochs = 5", "epochs = 0\nholdout = 0.1"), r"holdout = 0.1 has no meaning with epochs"),
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
    with pytest.raises(UsageError, match=r"recipe\.epochs = -1"):
        protocol.override(epochs=-1)
    with pytest.raises(UsageError, match="epochs: an integer of"):
        protocol.override(epochs=10**400)


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


def test_milestones_keep_their_share_of_the_epochs(tmp_path: Path) -> None:
    text = GOOD.replace("epochs = 5", "epochs = 100\nmilestones = [60, 70]")
    protocol = load_protocol(write(tmp_path, text))
    assert protocol.override(epochs=40).recipe.milestones == (24, 28)
    assert protocol.override(epochs=100).recipe.milestones == (60, 70)
    assert protocol.override(epochs=1).recipe.milestones == (1,)
    assert protocol.override(epochs=40, milestones=(39,)).recipe.milestones == (39,)
    assert protocol.override(epochs=0).recipe.milestones == ()
    assert protocol.override(epochs=0).override(epochs=5).recipe.milestones == ()


def test_nothing_is_held_out_of_no_epochs(tmp_path: Path) -> None:
    chosen = 'epochs = 5\nholdout = 0.1\ncheckpoint = "best"'
    protocol = load_protocol(write(tmp_path, GOOD.replace("epochs = 5", chosen)))
    recipe = protocol.override(epochs=0).recipe
    assert (recipe.epochs, recipe.holdout, recipe.checkpoint) == (0, 0.0, "last")
    with pytest.raises(UsageError, match=r"holdout = 0\.2 has no meaning"):
        protocol.override(epochs=0, holdout=0.2)


def test_overrides_may_be_numpy_numbers_and_lists(tmp_path: Path) -> None:
    protocol = load_protocol(write(tmp_path, GOOD))
    changed = protocol.override(epochs=np.int64(9), lr=np.float32(0.5), milestones=[3, 4])
    assert (changed.recipe.epochs, changed.recipe.lr) == (9, 0.5)
    assert changed.recipe.milestones == (3, 4)
    assert type(changed.recipe.epochs) is int


def test_an_override_of_nothing_names_the_keys(tmp_path: Path) -> None:
    protocol = load_protocol(write(tmp_path, GOOD))
    with pytest.raises(UsageError, match=r"called 'epoch'.* 'epochs'.*weight_decay"):
        protocol.override(epoch=3)


def test_files_of_an_inherited_protocol_are_found_beside_it(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    text = GOOD.replace(
        "[images]", 'canonical_shots = "s.csv"\nclass_order = "list:o.txt"\n[images]'
    )
    parent = write(other, text)
    child = write(own, 'inherits = "p"\nname = "q"\n', "q.toml")
    protocol = load_protocol(child, {"p": parent})
    assert (own / (protocol.canonical_shots or "")).resolve() == other / "s.csv"
    order = protocol.class_order.removeprefix("list:")
    assert (own / order).resolve() == other / "o.txt"
    same = load_protocol(write(other, 'inherits = "p.toml"\nname = "q"\n', "q.toml"))
    assert (same.canonical_shots, same.class_order) == ("s.csv", "list:o.txt")
    with pytest.raises(UsageError, match=r"q.toml:1: inherits = 'p': no protocol of that name"):
        load_protocol(child)


def test_the_place_of_a_table_of_shots_is_in_no_record(tmp_path: Path) -> None:
    text = GOOD.replace("[images]", 'split = "canonical"\ncanonical_shots = "s.csv"\n[images]')
    protocol = load_protocol(write(tmp_path, text))
    assert "canonical_shots" not in protocol.model_dump()
    assert Protocol.model_validate(protocol.model_dump()).split == "canonical"
    bare = GOOD.replace("[images]", 'split = "canonical"\n[images]')
    with pytest.raises(UsageError, match="needs canonical_shots"):
        load_protocol(write(tmp_path, bare))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("epochs = 5", "epochs = 5\nlr = nan"), "nan"),
        (GOOD.replace("epochs = 5", "epochs = 5\nlr = inf"), "inf"),
        (GOOD.replace("way = 2", "way = 2020-01-01"), "2020-01-01"),
        (GOOD.replace('title = "P"', "title = 07:32:00"), "07:32:00"),
        ("x = " + "[" * 20_000 + "]" * 20_000, "nested too deeply|not valid TOML"),
        (f"x = {'9' * 5000}\n" + GOOD, "p.toml"),
        (
            GOOD.replace("epochs = 5", "epochs = 5\nlr = 1e300"),
            r"p\.toml:\d+: recipe\.lr = 1e\+300",
        ),
        (f"class_order = 'seed:{'1' * 5000}'\n{GOOD}", r"p\.toml:1: class_order = .*5007 char"),
        (GOOD.replace("sessions = 3", "sessions = 4611686018427387904"), "less than or equal"),
        (GOOD.replace('title = "P"', 'title = "\\u0000"'), "title = .* no Unicode text"),
    ],
)
def test_values_that_no_protocol_can_have_are_named(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load_protocol(write(tmp_path, text))
