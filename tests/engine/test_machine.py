from __future__ import annotations

import os

import pytest

from fscil_bench.machine import load_per_core


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
