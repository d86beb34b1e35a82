from __future__ import annotations

import os

import pytest

from fscil_bench.training.compute import load_per_core, too_many_threads


def test_load_is_by_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 1.0, 1.0), raising=False)
    assert load_per_core() == 1.5


def test_load_that_is_not_known_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> tuple[float, float, float]:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", fails, raising=False)
    assert load_per_core() == 0.0
    monkeypatch.delattr(os, "getloadavg")
    assert load_per_core() == 0.0


def test_threads_that_share_cores_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert too_many_threads(1) == ""
    assert "2 threads, but this process may use 1 core: " in too_many_threads(2)
    assert too_many_threads(2).endswith("OMP_NUM_THREADS=1")
    monkeypatch.delattr(os, "sched_getaffinity")
    assert too_many_threads(8) == ""
