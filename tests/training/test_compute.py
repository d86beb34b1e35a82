from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fscil_bench.backbones.resnet20 import ResNet20Backbone
from fscil_bench.errors import UsageError
from fscil_bench.training import compute
from fscil_bench.training.compute import (
    check_precision,
    faster_precision,
    load_per_core,
    resolve_device,
    settle_threads,
)


def test_load_is_by_core_and_zero_where_it_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 1.0, 1.0), raising=False)
    assert load_per_core() == 1.5
    monkeypatch.delattr(os, "getloadavg")
    assert load_per_core() == 0.0


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_as_many_threads_as_cores_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(compute, "free_cores", lambda: 3)
    torch.set_num_threads(8)
    assert "computing with 3 threads: of 8 cores so many are free" in settle_threads(None)
    assert torch.get_num_threads() == 3
    monkeypatch.setattr(compute, "free_cores", lambda: 8)
    assert settle_threads(None) == ""
    assert torch.get_num_threads() == 3, "what was set lower stays"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(compute, "free_cores", lambda: 1)
    assert settle_threads(None) == ""
    assert torch.get_num_threads() == 3, "the user's own choice stays"


@pytest.mark.usefixtures("threads")
def test_threads_asked_for_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert settle_threads(1) == ""
    assert settle_threads(2) == "2 threads share 1 core: that is slow"
    assert torch.get_num_threads() == 2
    with pytest.raises(UsageError, match="--threads 0: give a number from 1 on"):
        settle_threads(0)


def test_a_core_is_free_if_it_idled_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # User, nice, system, idle, input and output: 28 of 30, 1 of 30 and 20 of 30 ticks idle.
    before, after = [(900, 100, 0)] * 3, [(902, 127, 1), (929, 101, 0), (910, 117, 3)]
    texts = iter(
        "cpu  9 9 9 9 9\n"
        + "".join(f"cpu{n} {u} 0 0 {i} {w}\n" for n, (u, i, w) in enumerate(rows))
        for rows in (before, after)
    )
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: next(texts))
    assert compute.free_cores(0) == 2


@pytest.mark.parametrize(("ratio", "chosen"), [(0.8, "fp32"), (1.14, "fp32"), (1.15, "bf16")])
def test_bf16_is_taken_where_it_was_measured_to_be_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ratio: float, chosen: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    cpu = torch.device("cpu")
    faster_precision(ResNet20Backbone(), 16, cpu, tmp_path.joinpath)
    (file,) = tmp_path.glob("*/measured.json")
    told = json.loads(file.read_text())
    assert set(told["seconds_a_step"]) == {"fp32", "bf16"}
    quotient = told["seconds_a_step"]["fp32"] / told["seconds_a_step"]["bf16"]
    assert told["fp32_over_bf16"] == pytest.approx(quotient)
    file.write_text(json.dumps({**told, "fp32_over_bf16": ratio}))
    assert faster_precision(ResNet20Backbone(), 16, cpu, tmp_path.joinpath) == chosen, (
        "not measured again"
    )


def test_precisions_and_devices_are_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    assert (
        faster_precision(ResNet20Backbone(), 32, torch.device("cpu"), tmp_path.joinpath) == "fp32"
    )
    assert not list(tmp_path.iterdir()), "nothing to measure"
    check_precision("auto")
    with pytest.raises(UsageError, match="unknown precision 'fp8'; known: auto, fp32, bf16"):
        check_precision("fp8")
    with pytest.raises(UsageError, match="device 'meta' cannot be used here"):
        resolve_device("meta")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert resolve_device("auto").type == "mps"
