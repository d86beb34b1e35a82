"""Two processes that want the same: one makes it, the other waits; a dead one is not waited for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from fscil_bench.store import locks
from fscil_bench.store.locks import Process, locked

HOLD = """
import sys, time
from pathlib import Path
from fscil_bench.store.locks import locked
with locked(Path(sys.argv[1]), print):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def holder(path: Path, seconds: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", HOLD, str(path), str(seconds)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def put(path: Path, process: Process) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"process": asdict(process), "token": "other"}))


def test_the_second_waits_and_says_for_whom(tmp_path: Path) -> None:
    path, told = tmp_path / "locks" / "network.lock", list[str]()
    with holder(path, 1) as other:
        started = time.monotonic()
        with locked(path, told.append):
            assert time.monotonic() - started > 0.5
    assert told == [
        f"waiting for {replace(Process.this(), pid=other.pid).title}, which makes the same ({path})"
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    path, told = tmp_path / "locks" / "network.lock", list[str]()
    with holder(path, 60) as other:
        other.kill()
    with locked(path, told.append):
        assert json.loads(path.read_text())["process"]["pid"] == os.getpid()
    assert told == []


def test_a_number_given_again_does_not_hide_a_stale_lock(tmp_path: Path) -> None:
    path, told = tmp_path / "locks" / "a.lock", list[str]()
    put(path, replace(Process.this(), born="1"))
    with locked(path, told.append):
        pass
    assert told == []


def test_a_machine_of_the_same_name_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SILENCE", 0.5)
    monkeypatch.setattr(locks, "LOOKS", 0.05)
    path, told, here = tmp_path / "locks" / "a.lock", list[str](), Process.this()
    boot, space = here.machine.split(" ")
    put(path, replace(here, machine=f"{boot[::-1]} {space}"))
    started = time.monotonic()
    with locked(path, told.append):
        assert time.monotonic() - started > 0.4
    assert told == [f"waiting for {here.title}, which makes the same ({path})"]


def test_a_lock_without_a_holder_is_waited_for_aloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("SILENCE", 0.5), ("UNREADABLE", 0.1), ("LOOKS", 0.05)):
        monkeypatch.setattr(locks, name, value)
    path, told = tmp_path / "locks" / "a.lock", list[str]()
    path.parent.mkdir()
    path.touch()
    with locked(path, told.append):
        pass
    assert told == [f"waiting for another process, which makes the same ({path})"]


def test_another_machine_is_waited_for_while_its_heart_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "SILENCE", 0.5)
    monkeypatch.setattr(locks, "LOOKS", 0.05)
    path, told = tmp_path / "locks" / "a.lock", list[str]()
    put(path, Process("elsewhere", "boot pid:[1]", 7, ""))
    beats = threading.Thread(target=lambda: [(time.sleep(0.2), os.utime(path)) for _ in range(4)])
    started = time.monotonic()
    beats.start()
    with locked(path, told.append):
        assert time.monotonic() - started > 0.8 + 0.5 - 0.1
    assert told == [f"waiting for process 7 on elsewhere, which makes the same ({path})"]
