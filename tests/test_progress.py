"""Progress: the time that is left, and what is shown of names."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from fscil_bench import progress
from fscil_bench.progress import Bars, Clock, Lines, printable


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that lets so many seconds pass."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def passed(seconds: float) -> None:
        now[0] += seconds

    return passed


def test_even_work_is_estimated_from_what_is_done(clock: Any) -> None:
    work = Clock(10)
    assert work.left(0) is None
    clock(4)
    assert work.left(2) == pytest.approx(16)
    clock(1)
    assert work.left(10) == 0


def test_resumed_work_is_estimated_from_what_was_done_since(clock: Any) -> None:
    work = Clock(10)
    assert work.left(6) is None
    clock(3)
    assert work.left(7) == pytest.approx(9)


def test_a_stage_is_estimated_from_its_own_epochs(
    clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lines(every=1).task("limit", 1.0) as task:
        for epoch in range(4):
            clock(65)
            task.update((epoch + 1) / 4)
    assert capsys.readouterr().err.splitlines() == [
        "limit: 25 %",
        "limit: 50 %, 2:10 left",
        "limit: 75 %, 1:05 left",
        "limit: 100 %, 0:00 left",
    ]


def test_what_is_prepared_before_the_first_unit_is_no_pace(clock: Any) -> None:
    work = Clock(1.0)
    clock(108)
    for epoch in range(5):
        clock(3.6)
        left = work.left((epoch + 1) / 10)
    assert left == pytest.approx(5 * 3.6)


def test_a_training_is_not_taken_for_a_run(clock: Any) -> None:
    work = Clock(5, ["ncm", "ncm", "ncm", "ldc", "ldc"])
    assert work.left(0) is None
    clock(3000)  # the first trains the network
    assert work.left(1) is None
    clock(2)
    assert work.left(2) is None, "nothing is known of ldc"
    clock(2)
    assert work.left(3) is None
    clock(9)
    assert work.left(4) is None, "its first may have learnt what the others find"
    clock(5)
    assert work.left(5) == 0


def test_runs_of_a_kind_are_estimated_from_their_own(clock: Any) -> None:
    work = Clock(5, [None] * 5)
    clock(3000)
    work.left(1)
    clock(4)
    assert work.left(2) == pytest.approx(12)
    clock(6)
    assert work.left(3) == pytest.approx(10)


def test_lines_tell_no_time_before_it_is_known(
    clock: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with Lines(every=1).task("runs", 3, [None] * 3) as task:
        clock(60)
        task.update(1, "first")
        clock(2)
        task.update(2, "\x1b[31mred")
    assert capsys.readouterr().err.splitlines() == [
        "runs: 33 %  first",
        "runs: 67 %, 0:02 left  \\x1b[31mred",
    ]


def test_bars_take_no_name_for_markup() -> None:
    bars, file = Bars(), io.StringIO()
    bars.console = Console(file=file, force_terminal=True, width=120)
    with bars.task("[/red] \x1b[2J", 2) as task:
        task.update(1, "[/blue]")
        deadline = time.monotonic() + 30
        while "[/blue]" not in file.getvalue() and time.monotonic() < deadline:
            time.sleep(0.02)  # the bars are drawn ten times a second
    bars.say("[/green]")
    for text in ("[/red] \\x1b[2J", "[/blue]", "[/green]"):
        assert text in file.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ± 汉\n\ttext", "plain ± 汉\n\ttext"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\rb\x07\x9b", "a\\rb\\x07\\x9b"),
        ("a\u202eb", "a\\u202eb"),
        ("\udcff", "\\udcff"),
    ],
)
def test_what_acts_on_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
