"""The table after a series of runs."""

from __future__ import annotations

from typing import Any

from fscil_bench.cli.summary import summary_table
from fscil_bench.plugins.registry import Registry


def test_names_break_no_table(factory: Any, registry: Registry) -> None:
    runs = [factory.write(factory.spec("ncm", params={"space": "a|b\nc"}))]
    lines = summary_table(runs, registry).splitlines()
    assert len(lines) == 3
    assert r"| ncm space=a\|b c | 1 | 66.67 | 78.89 | 75.00 | 50.00 | 60.00 |" in lines[2]
