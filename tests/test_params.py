from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import Field

from fscil_bench.errors import UsageError
from fscil_bench.params import params_dict, parse_params


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
