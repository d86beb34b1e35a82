"""A run and its table where Python lacks what Windows does not offer: forks, costs, load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import json, os, sys

for name in ("fork", "forkpty", "getloadavg", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("resource", "fcntl"):
    sys.modules[name] = None

import fscil_bench as fb

places = json.loads({places!r})
run = fb.run("ncm", **places)
text = fb.make_report("main-table", **places).text
print(json.dumps([run.accuracies, run.record.peak_memory, "| NCM | 1 |" in text]))
"""


def test_a_run_and_its_table_need_nothing_of_posix(toy: Any) -> None:
    here = toy.run("ncm", seed=0, threads=1, precision="fp32")
    places = toy.settings(
        plugins=[str(file) for file in toy.plugins],
        results=str(toy.folder / "other"),
        cache=str(toy.folder / "other-cache"),
        threads=1,
        precision="fp32",
    )
    program = PROGRAM.format(places=json.dumps(places))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    accuracies, peak_memory, has_row = json.loads(done.stdout.splitlines()[-1])
    assert accuracies == here.accuracies
    known = Path("/proc/self/status").exists()
    assert (peak_memory > 0) == known, "0 where nothing tells it"
    assert has_row
