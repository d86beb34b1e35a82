"""What the machine gives to a process, and what else it was doing while something was timed."""

from __future__ import annotations

import os


def load_per_core() -> float:
    """Return the processes that wanted to run in the last minute, by core; 0 where not known.

    Above 1 they had to share cores, so that times are too long.
    """
    try:
        recent = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on Windows, and not in every container
        return 0.0
    return round(recent / (os.cpu_count() or 1), 2)


def too_many_threads(threads: int) -> str:
    """Return a warning if `threads` have to share fewer cores; empty if not, or not known.

    They then wait for one another, which can make training many times slower.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return ""
    if threads <= cores:
        return ""
    return (
        f"PyTorch computes with {threads} threads, but this process may use {cores} "
        f"{'core' if cores == 1 else 'cores'}: that is slow; set OMP_NUM_THREADS={cores}"
    )
