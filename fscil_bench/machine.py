"""What else the machine was doing while something was timed."""

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
