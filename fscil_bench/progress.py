"""Progress of long work, with the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Task(Protocol):
    """A piece of work under way."""

    def update(self, done: float, note: str = "") -> None:
        """Say how much is done, in the units of the task's total."""


class Progress(Protocol):
    """Something that shows tasks."""

    def task(self, title: str, total: float) -> AbstractContextManager[Task]:
        """Return a context in which a task of `total` units is shown."""

    def say(self, message: str) -> None:
        """Show one line."""


class _SilentTask:
    def update(self, done: float, note: str = "") -> None:
        pass


class Silent:
    """Shows nothing."""

    @contextmanager
    def task(self, title: str, total: float) -> Iterator[Task]:  # noqa: ARG002
        """Return a context whose task shows nothing."""
        yield _SilentTask()

    def say(self, message: str) -> None:
        """Show nothing."""


class Lines:
    """Writes a line to stderr every so many seconds: for logs and pipes."""

    def __init__(self, every: float = 15.0) -> None:
        self.every = every

    @contextmanager
    def task(self, title: str, total: float) -> Iterator[Task]:
        """Return a context whose task writes lines."""
        yield _LineTask(title, total, self.every)

    def say(self, message: str) -> None:
        """Write one line."""
        print(message, file=sys.stderr, flush=True)  # noqa: T201


class _LineTask:
    def __init__(self, title: str, total: float, every: float) -> None:
        self.title, self.total, self.every = title, total, every
        self.started = self.last = time.monotonic()
        self.first: float | None = None

    def update(self, done: float, note: str = "") -> None:
        now = time.monotonic()
        if self.first is None:
            self.first = done
        if now - self.last < self.every:
            return
        self.last = now
        gained = done - self.first
        left = (now - self.started) * (self.total - done) / gained if gained > 0 else None
        remaining = f", {_duration(left)} left" if left is not None else ""
        text = f"{self.title}: {100 * done / self.total:.0f} %{remaining}"
        print(f"{text}  {note}".rstrip(), file=sys.stderr, flush=True)  # noqa: T201


class Bars:
    """Bars in a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True)
        self._live: RichProgress | None = None

    @contextmanager
    def task(self, title: str, total: float) -> Iterator[Task]:
        """Return a context whose task is a bar; tasks may be nested."""
        owner = self._live is None
        live = self._live or self._start()
        identity = live.add_task(title, total=total, note="")
        try:
            yield _BarTask(live, identity)
        finally:
            live.remove_task(identity)
            if owner:
                live.stop()
                self._live = None

    def _start(self) -> RichProgress:
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._live = RichProgress(*columns, console=self.console, transient=True)
        self._live.start()
        return self._live

    def say(self, message: str) -> None:
        """Show one line above the bars."""
        self.console.print(message, markup=False, highlight=False, soft_wrap=True)


class _BarTask:
    def __init__(self, live: RichProgress, identity: TaskID) -> None:
        self.live, self.identity = live, identity

    def update(self, done: float, note: str = "") -> None:
        self.live.update(self.identity, completed=done, note=note)


def for_terminal() -> Progress:
    """Return bars where stderr is a terminal, else occasional lines."""
    return Bars() if sys.stderr.isatty() else Lines()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
