"""Stages that learn from base data go on after a stop, and end as if there had been none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fscil_bench.method import Method
from fscil_bench.methods.episodic.cec import Cec, CecTrained
from fscil_bench.methods.episodic.limit import Limit
from fscil_bench.methods.episodic.metafscil import MetaFscil
from fscil_bench.methods.orco import Orco
from fscil_bench.store.tensors import FileCheckpoint
from fscil_bench.testing import ToyTask

STAGES: list[tuple[type[Method], dict[str, Any]]] = [
    (Cec, {"epochs": 4, "episodes": 2, "ways": 3, "queries": 2}),
    (CecTrained, {"epochs": 4, "episodes": 2, "ways": 3, "queries": 2}),
    (Limit, {"epochs": 4, "tasks": 2, "ways": 3, "batch": 16, "milestones": "1,3"}),
    (MetaFscil, {"epochs": 4, "sessions": 1, "ways": 1, "support": 2, "queries": 2}),
    (Orco, {"base_epochs": 4, "width": 8, "dim": 16, "base_batch": 16}),
]


@pytest.mark.parametrize(("kind", "values"), STAGES, ids=lambda x: getattr(x, "name", ""))
def test_a_stopped_stage_ends_as_one_that_was_not_stopped(
    kind: type[Method], values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fscil_bench.methods._shared.stage.SAVED_EVERY", 0.0)
    said: list[str] = []
    kept = FileCheckpoint(tmp_path / "checkpoint.pt", "stage", said.append)
    task = ToyTask(needs=kind.needs)

    def pretrained(stop: float = 2.0, checkpoint: FileCheckpoint | None = kept) -> list[float]:
        told = []

        def progress(done: float) -> None:
            told.append(done)
            if done >= stop:
                raise KeyboardInterrupt

        context = replace(task.context(kind), checkpoint=checkpoint)
        method = kind(kind.Params(**values), context)
        learnt.append(method.pretrain(task.session(0), progress))
        return told

    learnt: list[dict[str, torch.Tensor]] = []
    assert pretrained(checkpoint=None) == [0.25, 0.5, 0.75, 1.0]
    with pytest.raises(KeyboardInterrupt):
        pretrained(stop=0.5)
    assert pretrained() == [0.5, 0.75, 1.0]
    assert said == ["stage goes on where it was stopped"]
    whole, resumed = learnt
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name


def test_a_damaged_state_is_told_and_not_taken(tmp_path: Path) -> None:
    said: list[str] = []
    kept = FileCheckpoint(tmp_path / "checkpoint.pt", "stage", said.append)
    assert kept.load() is None
    kept.save({"epochs": 3, "parts": {"rows": torch.ones(2)}})
    whole = kept.path.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(torch.ones(2).numpy().tobytes()) + 3] ^= 128  # the sign of a row's entry
    for content in (whole[:40], b"", bytes(flipped)):
        kept.path.write_bytes(content)
        assert kept.load() is None
        assert "stage begins anew" in said.pop()
    kept.path.write_bytes(whole)
    assert kept.load() is not None
    kept.remove()
    assert kept.load() is None and len(said) == 1


def test_a_state_that_cannot_be_kept_ends_no_work(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "file").touch()
    FileCheckpoint(tmp_path / "file" / "checkpoint.pt", "stage", said.append).save({"epochs": 3})
    (line,) = said
    assert line.startswith("warning: stage: a stop would lose what is done so far: ")
