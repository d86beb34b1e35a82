from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.plugins.registry import Registry
from fscil_bench.report import ReportInput
from fscil_bench.reports._selected import LONGEST, files_folder
from fscil_bench.request import Selection


@dataclass(frozen=True)
class Params:
    rows: str = ""


def folder(rows: str = "", **asked: Any) -> str:
    given = ReportInput(Selection("toy", **asked), [], Path("out"), Registry())
    return files_folder(given, Params(rows)).as_posix()


def test_a_whole_report_is_in_its_folder() -> None:
    assert folder() == "out"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"methods": ("ncm", "ldc")}, "method=ncm,ldc"),
        ({"representations": ("fact",), "seeds": (0, 1, 2)}, "representation=fact_seeds=0-2"),
        ({"rows": "ncm"}, "rows=ncm"),
    ],
)
def test_a_part_is_in_a_folder_of_its_own(asked: dict[str, Any], name: str) -> None:
    assert folder(**asked) == f"out/{name}"


def test_signs_that_paths_do_not_take_are_replaced_and_told_apart() -> None:
    first, second = folder(split="outlier:0.2"), folder(split="outlier/0.2")

    assert first.startswith("out/split=outlier-0.2-")
    assert first != second
    assert len(Path(second).parts) == 2


def test_a_long_selection_has_a_short_name() -> None:
    first, second = (folder(rows="x" * 300 + end) for end in "ab")

    assert first != second
    assert len(Path(first).name) <= LONGEST + 17
