from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.params import file_field, files_of, params_dict, parse_params


@dataclass(frozen=True)
class Params:
    steps: Annotated[int, Field(ge=0)] = 1
    rate: float = 0.1
    space: Literal["raw", "tukey"] = "raw"
    flag: bool = False
    title: str = ""


def test_strings_are_typed_by_the_fields() -> None:
    params = parse_params("x", Params, {"steps": "3", "rate": "1e-2", "flag": "true"})
    assert params == Params(steps=3, rate=0.01, flag=True)
    assert params_dict(params) == {
        "steps": 3,
        "rate": 0.01,
        "space": "raw",
        "flag": True,
        "title": "",
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"step": "3"}, r"no parameter 'step'; did you mean 'steps'"),
        ({"steps": "many"}, r"steps = 'many'"),
        ({"steps": "-1"}, r"steps = '-1'"),
        ({"space": "cooked"}, r"space = 'cooked'.*'raw' or 'tukey'"),
        ({"steps": "1.5"}, r"steps = '1.5'"),
        ({"rate": "inf"}, r"rate = inf: input should be a finite number"),
        ({"rate": "nan"}, r"rate = nan: input should be a finite number"),
        (
            {"steps": 10**5000},
            r"steps = an integer of 16610 bits: .*|steps: an integer of 166\d\d bits",
        ),
        ({"steps": "7" * 5000}, r"steps = '7{59}\.\.\. \(5002 characters\): "),
        ({"title": "a\0b"}, r"title = 'a\\x00b': holds what is no Unicode text"),
        ({"title": "\udcff"}, r"title = '\\udcff': holds what is no Unicode text"),
    ],
)
def test_a_bad_value_is_named(values: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        parse_params("method 'x'", Params, values)


@dataclass(frozen=True)
class Reading:
    words: str = file_field()
    steps: int = 1


def test_a_file_is_found_from_anywhere_and_told_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"some words"
    (tmp_path / "one").mkdir()
    for name in ("one/words.npy", "others.npy"):
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    params = parse_params("x", Reading, {"words": "one/words.npy"})
    monkeypatch.chdir(tmp_path / "one")
    assert files_of(params) == {"words": str(tmp_path / "one/words.npy")}
    told = f"sha256-{hashlib.sha256(content).hexdigest()[:12]}"
    other = parse_params("x", Reading, {"words": Path("../others.npy")})
    assert params_dict(params) == params_dict(other) == {"words": told, "steps": 1}
    (tmp_path / "others.npy").write_bytes(b"other words")
    assert params_dict(other) != params_dict(params)
    for none in ("", "  "):
        assert parse_params("x", Reading, {"words": none}) == Reading()


@pytest.mark.parametrize(
    ("name", "told"), [("none.npy", "no such file"), (".", "a folder, not a file")]
)
def test_a_file_that_is_not_there_is_named(name: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"x: words = '.*': {told}"):
        parse_params("x", Reading, {"words": str(tmp_path / name)})
