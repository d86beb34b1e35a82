"""Progress of long work, with the time that is left."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


CONTROL = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that act on a terminal or are none: controls, turns of direction, halves."""


def printable(text: str) -> str:
    """Return a text with its control characters, which would act on a terminal, written out."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class Task(Protocol):
    """A piece of work under way."""

    def update(self, done: float, note: str = "") -> None:
        """Say how much is done, in the units of the task's total."""


class Progress(Protocol):
    """Something that shows tasks."""

    def task(
        self, title: str, total: float, kinds: Sequence[Hashable] = ()
    ) -> AbstractContextManager[Task]:
        """Return a context in which a task of `total` units is shown.

        Units take the same time unless `kinds` says of each what it is like: then the time that
        is left is told from finished ones of a kind, but for the first of it, which may prepare
        what the others find; it is not told while a kind that is to come has no other.
        """

    def say(self, message: str) -> None:
        """Show one line."""


class Clock:
    """Tells the time that a task has left.

    Args:
        total: the task's units.
        kinds: of each unit, where they differ; see `Progress.task`.
    """

    def __init__(self, total: float, kinds: Sequence[Hashable] = ()) -> None:
        self.total, self.kinds = total, kinds
        self.last = time.monotonic()
        self.first: tuple[float, float] | None = None
        self.seconds: dict[Hashable, list[float]] = {}

    def left(self, done: float) -> float | None:
        """Return the seconds that are left once so many units are done; None while not known."""
        now = time.monotonic()
        if self.kinds:
            return self._left_by_kind(int(done), now)
        # The pace is counted from the first report on: preparing may have taken long before it, or
        # an earlier process have done some units.
        if self.first is None:
            self.first = done, now
        gained, since = done - self.first[0], now - self.first[1]
        return since * (self.total - done) / gained if gained > 0 else None

    def _left_by_kind(self, done: int, now: float) -> float | None:
        finished = sum(map(len, self.seconds.values()))
        for kind in self.kinds[finished:done]:
            self.seconds.setdefault(kind, []).append((now - self.last) / (done - finished))
            self.last = now
        coming = self.kinds[done:]
        if any(len(self.seconds.get(kind, ())) < 2 for kind in coming):
            return None
        return sum(median(self.seconds[kind][1:]) for kind in coming)


class _SilentTask:
    def update(self, done: float, note: str = "") -> None:
        pass


class Silent:
    """Shows nothing."""

    @contextmanager
    def task(
        self,
        title: str,  # noqa: ARG002
        total: float,  # noqa: ARG002
        kinds: Sequence[Hashable] = (),  # noqa: ARG002
    ) -> Iterator[Task]:
        """Return a context whose task shows nothing."""
        yield _SilentTask()

    def say(self, message: str) -> None:
        """Show nothing."""


class Lines:
    """Writes a line to stderr every so many seconds: for logs and pipes."""

    def __init__(self, every: float = 15.0) -> None:
        self.every = every

    @contextmanager
    def task(self, title: str, total: float, kinds: Sequence[Hashable] = ()) -> Iterator[Task]:
        """Return a context whose task writes lines."""
        yield _LineTask(self, title, Clock(total, kinds))

    def say(self, message: str) -> None:
        """Write one line."""
        print(printable(message), file=sys.stderr, flush=True)  # noqa: T201


class _LineTask:
    def __init__(self, lines: Lines, title: str, clock: Clock) -> None:
        self.lines, self.title, self.clock = lines, title, clock
        self.last = time.monotonic()

    def update(self, done: float, note: str = "") -> None:
        left = self.clock.left(done)
        now = time.monotonic()
        if now - self.last < self.lines.every:
            return
        self.last = now
        remaining = f", {_duration(left)} left" if left is not None else ""
        text = f"{self.title}: {100 * done / self.clock.total:.0f} %{remaining}"
        self.lines.say(f"{text}  {note}".rstrip())


class Bars:
    """Bars in a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self._live: RichProgress | None = None

    @contextmanager
    def task(self, title: str, total: float, kinds: Sequence[Hashable] = ()) -> Iterator[Task]:
        """Return a context whose task is a bar; tasks may be nested."""
        owner = self._live is None
        live = self._live or self._start()
        identity = live.add_task(printable(title), total=total, left="", note="")
        try:
            yield _BarTask(live, identity, Clock(total, kinds))
        finally:
            live.remove_task(identity)
            if owner:
                live.stop()
                self._live = None

    def _start(self) -> RichProgress:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[note]}", markup=False),
        )
        self._live = RichProgress(*columns, console=self.console, transient=True)
        self._live.start()
        return self._live

    def say(self, message: str) -> None:
        """Show one line above the bars."""
        self.console.print(printable(message), markup=False, highlight=False, soft_wrap=True)


class _BarTask:
    def __init__(self, live: RichProgress, identity: TaskID, clock: Clock) -> None:
        self.live, self.identity, self.clock = live, identity, clock

    def update(self, done: float, note: str = "") -> None:
        left = self.clock.left(done)
        told = "" if left is None else _duration(left)
        self.live.update(self.identity, completed=done, left=told, note=printable(note))


def for_terminal() -> Progress:
    """Return bars where stderr is a terminal, else occasional lines."""
    return Bars() if sys.stderr.isatty() else Lines()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
