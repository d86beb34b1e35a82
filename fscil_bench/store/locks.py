"""Locks between processes: one makes what others wait for, and what a dead one held is free."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from uuid import uuid4

from fscil_bench.errors import WriteError

HEARTBEAT = 15.0
"""Seconds after which a holder renews the time of its lock."""
SILENCE = 8 * HEARTBEAT
"""Seconds without a renewal after which a holder on another machine is taken for dead."""
UNREADABLE = 2.0
"""Seconds that a lock may be without its holder's name, while it is written, unsaid."""
LOOKS = 0.5
"""Seconds between two looks at a lock that another process holds."""


@dataclass(frozen=True)
class Process:
    """A process that can be told from all others, those with its number later included.

    Attributes:
        host: the machine's name, for messages.
        machine: its boot and the space of its process numbers; other machines cannot see into it.
        pid: the process's number.
        born: when it started, in the system's own count; empty where that is not known.
    """

    host: str
    machine: str
    pid: int
    born: str

    @classmethod
    def this(cls) -> Process:
        """Return the process that asks."""
        return cls(socket.gethostname(), _machine(), os.getpid(), _born(os.getpid()))

    @property
    def title(self) -> str:
        """Name it in a message."""
        return f"process {self.pid} on {self.host}"

    def is_dead(self) -> bool | None:
        """Return whether it has ended; None where that cannot be seen from here."""
        if self.machine == _machine():
            return not _runs(self.pid) or _born(self.pid) != self.born
        # Perhaps this machine before a restart; but two machines may have one name.
        return None


@dataclass(frozen=True)
class _Claim:
    """What a lock file holds."""

    process: Process
    token: str = field(default_factory=lambda: uuid4().hex)

    def text(self) -> str:
        return json.dumps(asdict(self))


@contextmanager
def locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock file while the block runs; wait, and say so, while another process holds it.

    A lock is stale once its process is gone; on another machine, before a restart of this one or
    without a readable holder, once it has been silent for `SILENCE` seconds of the waiting
    process's own clock. It is then taken over. Should two waiting processes do so in one moment,
    both may go on: the lock saves work, and what is written is atomic anyway.

    Raises:
        WriteError: the lock cannot be written.
    """
    claim = _Claim(Process.this())
    _take(path, claim, say)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(path, ended), daemon=True)
    beating.start()
    try:
        yield
    finally:
        ended.set()
        beating.join()
        if _holder(path) == claim:
            path.unlink(missing_ok=True)
        with suppress(OSError):  # others may hold theirs there
            path.parent.rmdir()


def _take(path: Path, claim: _Claim, say: Callable[[str], None]) -> None:
    seen, since, told = 0, time.monotonic(), False
    while not _created(path, claim):
        holder, renewed = _holder(path), _renewed(path)
        if renewed != seen:
            seen, since = renewed, time.monotonic()
        dead = None if holder is None else holder.process.is_dead()
        if dead or (dead is None and time.monotonic() - since > SILENCE):
            _break(path, holder)
            continue
        if not told and (holder is not None or time.monotonic() - since > UNREADABLE):
            whom = "another process" if holder is None else holder.process.title
            say(f"waiting for {whom}, which makes the same ({path})")
            told = True
        time.sleep(LOOKS)


def _created(path: Path, claim: _Claim) -> bool:
    """Write a lock unless there is one, and return whether it was written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(claim.text())
    except (FileExistsError, FileNotFoundError):  # or the last holder has removed the folder
        return False
    except OSError as error:
        raise WriteError(
            f"{path}: cannot be written ({error.strerror or error}); choose another folder with "
            "--results or --cache, or make room"
        ) from error
    return True


def _break(path: Path, holder: _Claim | None) -> None:
    """Remove a stale lock, but not one that another process has put in its place."""
    aside = path.with_name(f"{path.name}.{uuid4().hex}")
    with suppress(FileNotFoundError):
        path.replace(aside)
        if _holder(aside) != holder:
            with suppress(OSError):  # a third has it by now
                os.link(aside, path)
        aside.unlink()


def _holder(path: Path) -> _Claim | None:
    """Return whose a lock is; None if it is gone or not whole yet."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        return _Claim(Process(**told["process"]), told["token"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _renewed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _beat(path: Path, ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT):
        with suppress(OSError):
            os.utime(path)


def _runs(pid: int) -> bool:
    if sys.platform == "win32":  # there, to ask by a signal would end it
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's
    return True


def _born(pid: int) -> str:
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = told.rpartition(")")[2].split()
    return "" if fields[0] == "Z" else fields[19]  # what waits to be buried has ended


@cache
def _machine() -> str:
    return f"{_boot()} {_space()}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
