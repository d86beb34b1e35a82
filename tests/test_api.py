"""Arguments as Python brings them: taken as they are meant, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fscil_bench as fb
from fscil_bench import api
from fscil_bench.errors import UsageError
from fscil_bench.request import parse_seeds, words


def test_one_thing_of_whatever_type_is_one_run(toy: Any) -> None:
    run = toy.run(seed=np.array(1), overrides={"way": np.int64(2)}, protocol=Path(toy.toml))
    assert run.spec.seed == 1
    runs = toy.run(seed=(seed for seed in [1]), plugins=(file for file in toy.plugins))
    assert [each.key for each in runs] == [run.key]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"seed": b"0"}, "seed b'0'"),
        ({"seed": []}, "no seed"),
        ({"method": [3]}, "method: 3 is no name"),
        ({"params": ["space"]}, r"params = \['space'\]: give a mapping"),
        ({"params": {1: 2}}, r"params = \{1: 2\}: give a mapping"),
        ({"overrides": {"way": "1"}}, "way = '1': input should be"),
        ({"overrides": {"name": "mine"}}, "its name cannot be overridden; write a TOML"),
        ({"split": Path("seeded")}, "split = .*: give its name"),
        ({"views": None}, "views = None: give plain or flip"),
        ({"force": "no"}, "force = 'no': give True or False"),
        ({"progress": "no"}, "progress = 'no'"),
        ({"plugins": [3]}, "plugins = 3: give a path"),
        ({"skip_broken": "no"}, "skip_broken = 'no': give True or False"),
        ({"device": None}, "device = None: give its name"),
        ({"results": 3}, "results = 3: give a path"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    toy: Any, asked: dict[str, Any], expected: str
) -> None:
    with pytest.raises(UsageError, match=expected):
        fb.run(**{"method": "ncm", **toy.settings(**asked)})


def test_an_empty_grid_is_not_the_proposed_one(toy: Any) -> None:
    with pytest.raises(UsageError, match="names no parameter"):
        fb.tune("ncm", **toy.settings(grid={}))


def test_stored_runs_are_loaded_from_a_folder_by_session_or_run(tmp_path: Path) -> None:
    file = tmp_path / "results"
    file.touch()
    for load in (api.load_runs, api.load_episodes):
        with pytest.raises(UsageError, match="a file, and no folder"):
            load(file)
    with pytest.raises(UsageError, match="by = 'x': give 'session' or 'run'"):
        api.load_runs(tmp_path, by="x")  # type: ignore[arg-type]


def test_a_single_plug_in_is_a_path_as_good_as_a_list() -> None:
    for one in ("a.py", Path("a.py")):
        assert fb.Options(plugins=one).plugin_files == (Path("a.py"),)  # type: ignore[arg-type]


def test_paths_are_words_and_numbers_of_any_type_are_seeds() -> None:
    assert words([Path("a,b.toml"), "c,d"]) == ["a,b.toml", "c", "d"]
    assert parse_seeds(np.arange(2)) == parse_seeds(range(2)) == (0, 1)
