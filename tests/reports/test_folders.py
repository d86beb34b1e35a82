"""Where the files of a part of a report go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fscil_bench.api import make_report
from fscil_bench.store.runs import Store


@pytest.mark.parametrize(
    ("report", "part"),
    [("main-table", "method=ncm"), ("site", "method=ncm"), ("card", ".")],
)
def test_a_part_never_replaces_the_whole_unless_its_files_belong_together(
    factory: Any, store: Store, tmp_path: Path, report: str, part: str
) -> None:
    factory.write(factory.spec("ncm"))
    out = tmp_path / "out"

    output = make_report(report, "toy", methods=["ncm"], results=store.results, folder=out)

    assert {path.parent for path in output.files if path.suffix == ".md"} == {out / part}
