"""What is recorded of a run beside its sessions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from fscil_bench.running.costs import Costs
from fscil_bench.store.tensors import FileCheckpoint
from fscil_bench.training.compute import peak_memory


def costs(folder: Path) -> Costs:
    checkpoint = FileCheckpoint(folder / "checkpoint.pt", "a run", lambda _: None)
    return Costs(torch.device("cpu"), checkpoint)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system forgets")
def test_memory_is_counted_from_the_start_of_the_sessions(tmp_path: Path) -> None:
    most = torch.zeros(2**28, dtype=torch.uint8)
    before = peak_memory()
    del most
    assert costs(tmp_path).told()["peak_memory"] < before - 2**27


def test_costs_go_on_over_stops_on_other_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine, load in (("first", 7.0), ("second", 1.0)):
        with monkeypatch.context() as there:
            there.setattr("platform.platform", lambda name=machine: name)
            there.setattr("os.getloadavg", lambda value=load: (value * 1000, 0.0, 0.0))
            there.setattr("fscil_bench.running.costs.peak_memory", lambda value=load: int(value))
            stopped = costs(tmp_path)
            stopped.load()
            stopped.save({"sessions": 1})
    goes_on = costs(tmp_path)
    assert goes_on.load() == {"sessions": 1}
    told = goes_on.told()
    assert [each["platform"] for each in told["environment"]["before"]] == ["first", "second"]
    assert told["load"] >= 7.0
    assert "before" not in costs(tmp_path / "new").told()["environment"]


def test_a_state_of_before_costs_were_kept_is_taken(tmp_path: Path) -> None:
    own = costs(tmp_path)
    own.checkpoint.save({"sessions": 1})
    assert own.load() == {"sessions": 1}
