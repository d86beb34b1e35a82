"""Few-shot class-incremental learning (FSCIL), measured on equal terms.

``fscil_bench.run(method="ldc", protocol="glyphs", seed=0)`` trains (or finds) a representation,
takes the method through every session and stores what it predicted;
``fscil_bench.load_runs()`` reads what is stored into a pandas frame.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fscil_bench.api import load_episodes, load_runs, make_report, run
    from fscil_bench.errors import FscilError
    from fscil_bench.store.runs import StoredRun

_EXPORTS = {
    "run": "fscil_bench.api",
    "make_report": "fscil_bench.api",
    "load_runs": "fscil_bench.api",
    "load_episodes": "fscil_bench.api",
    "StoredRun": "fscil_bench.store.runs",
    "FscilError": "fscil_bench.errors",
}

__all__ = [
    "FscilError",
    "StoredRun",
    "__version__",
    "load_episodes",
    "load_runs",
    "make_report",
    "run",
]


def __getattr__(name: str) -> Any:
    # Importing the package must stay cheap: torch and pandas load with the first call, not before.
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'fscil_bench' has no attribute {name!r}")
