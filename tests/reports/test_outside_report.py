"""The report that CONTRIBUTING shows, in somebody else's package, in every format."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.api import make_report
from fscil_bench.plugins.registry import builtin_plugins, load_registry

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the report as a package with an entry point, which is looked for anew."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    (code,) = (block for block in blocks if "(Report)" in block)
    site = tmp_path / "site-packages"
    files = {
        "outside_reports/__init__.py": "",
        "outside_reports/gap.py": code,
        "outside_reports-1.0.dist-info/METADATA": "Name: outside-reports\nVersion: 1.0\n",
        "outside_reports-1.0.dist-info/entry_points.txt": (
            "[fscil_bench.reports]\ngap = outside_reports.gap:Gap\n"
        ),
    }
    for name, text in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    monkeypatch.syspath_prepend(str(site))
    builtin_plugins.cache_clear()
    yield
    builtin_plugins.cache_clear()


@pytest.mark.usefixtures("package")
def test_it_comes_out_in_all_formats(factory: Any, tmp_path: Path) -> None:
    for seed, last in enumerate([(30, 10), (30, 16)]):  # of 40 base and 20 new images
        factory.write(factory.spec("ncm", seed), [(36, 0), (34, 6), last])
    factory.write(factory.spec("ldc"))

    output = make_report("gap", "toy", results=tmp_path / "results", folder=tmp_path / "gap")

    assert load_registry().get("report", "gap").value.__module__ == "outside_reports.gap"
    assert {path.name for path in output.files} == {
        *("gap.md", "gap.csv", "gap.tex", "gap-alone.tex", "bars.png", "bars.pdf", "bars.csv"),
    }
    assert all(path.stat().st_size for path in output.files)
    # 75 % of base images, 50 and 80 % of new ones: gaps of 25 and -5; t(1, 97.5 %) · 15 = 190.59.
    row = "| NCM | 2 | 75.00 ± 0.00 | 65.00 ± – | 10.00 ± 190.59 |"
    assert row in output.text.splitlines()
    assert r"& 10.00\,$\pm$\,190.59" in (tmp_path / "gap" / "gap.tex").read_text()
    with (tmp_path / "gap" / "gap.csv").open(newline="") as file:
        lines = {line["label"]: line for line in csv.DictReader(file)}
    assert float(lines["NCM"]["gap_mean"]) == pytest.approx(10)
    assert float(lines["LDC"]["gap_mean"]) == pytest.approx(25)
    (missing,) = output.missing
    assert missing.startswith("fscil-bench run --method ldc") and "--seeds 1 " in missing
