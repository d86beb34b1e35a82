"""What running grids do, for other shells: each keeps a file beside its results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

from pydantic import TypeAdapter, ValidationError

from fscil_bench.errors import StoreError
from fscil_bench.store.files import now, write_text
from fscil_bench.store.locks import SILENCE, Process
from fscil_bench.store.runs import Store

EVERY = 2.0
"""Seconds between two writings."""


@dataclass(frozen=True)
class Status:
    """What a grid does.

    Attributes:
        process: of the command that runs it.
        started: when, in UTC.
        updated: when this was written.
        dashboard: the address of Dask's own pages about it.
        done: nodes that are finished; failed ones among them.
        failed: nodes that could not be made.
        total: nodes in all.
        running: titles of those that a worker has begun or holds.
        left: seconds that are left; None while not known.
        ended: whether its process has ended without removing the file, or has long been silent.
    """

    process: Process
    started: str
    updated: str
    dashboard: str
    done: int
    failed: int
    total: int
    running: tuple[str, ...]
    left: float | None
    ended: bool = False

    @property
    def waiting(self) -> int:
        """How many nodes wait for others, or for a worker."""
        return max(0, self.total - self.done - len(self.running))

    def lines(self) -> Iterator[str]:
        """Yield what is told of it."""
        told = f"{self.done} of {self.total} tasks done, {len(self.running)} running, "
        told += f"{self.waiting} waiting, {self.failed} failed"
        left = "" if self.left is None else f", about {self.left / 60:.0f} min left"
        yield f"grid of {self.process.title}, since {self.started}: {told}{left}"
        if self.ended:
            yield "  it has ended without a word; the same command goes on from there"
            return
        yield f"  dashboard {self.dashboard}, told at {self.updated}"
        for title in self.running:
            yield f"  running: {title}"


class StatusFile:
    """Writes what a grid does, not more often than needed, and removes it in the end."""

    def __init__(self, store: Store, dashboard: str) -> None:
        self.process, self.started, self.dashboard = Process.this(), now(), dashboard
        self.path = _folder(store) / f"{self.process.host}-{self.process.pid}.json"
        self._written = float("-inf")

    def __enter__(self) -> StatusFile:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return time.monotonic() - self._written >= EVERY

    def write(
        self, done: int, failed: int, total: int, running: tuple[str, ...], left: float | None
    ) -> None:
        """Write what is done now."""
        self._written = time.monotonic()
        told = Status(
            self.process, self.started, now(), self.dashboard, done, failed, total, running, left
        )
        with suppress(StoreError):  # no grid fails for it
            write_text(self.path, json.dumps(asdict(told), indent=1) + "\n")


def grids(store: Store, say: Callable[[str], None]) -> Iterator[Status]:
    """Yield what the grids on a store do; the files of dead ones are removed once they are told."""
    for path in sorted(_folder(store).glob("*.json")):
        try:
            status = TypeAdapter(Status).validate_json(path.read_bytes())
            silent = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            continue  # it has ended meanwhile
        except (OSError, ValueError) as error:
            say(f"warning: {path}: tells of no grid ({_first_line(error)}); remove it")
            continue
        dead = status.process.is_dead()
        ended = silent > SILENCE if dead is None else dead
        yield replace(status, ended=ended)
        if ended:
            path.unlink(missing_ok=True)


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return ": ".join([*map(str, first["loc"]), first["msg"]])
    return str(error)


def _folder(store: Store) -> Path:
    return store.results / ".grids"
