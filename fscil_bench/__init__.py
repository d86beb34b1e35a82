"""Few-shot class-incremental learning (FSCIL), measured on equal terms.

``fscil_bench.run(method="ldc", protocol="glyphs", seed=0)`` trains (or finds) a representation,
takes the method through every session and stores what it predicted;
``fscil_bench.load_runs()`` reads what is stored into a pandas frame. ``tune`` chooses parameters,
``run_episodes`` measures ordinary few-shot classification, ``make_report`` draws tables and
figures, and ``check`` holds a plug-in of yours against its contract.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fscil_bench.api import (
        check,
        export_features,
        load_episodes,
        load_runs,
        make_report,
        run,
        run_episodes,
        tune,
    )
    from fscil_bench.errors import FscilError
    from fscil_bench.grids.workers import Workers
    from fscil_bench.options import Options
    from fscil_bench.store.runs import StoredRun

_EXPORTS = {
    "FscilError": "fscil_bench.errors",
    "Options": "fscil_bench.options",
    "StoredRun": "fscil_bench.store.runs",
    "Workers": "fscil_bench.grids.workers",
    "check": "fscil_bench.api",
    "export_features": "fscil_bench.api",
    "load_episodes": "fscil_bench.api",
    "load_runs": "fscil_bench.api",
    "make_report": "fscil_bench.api",
    "run": "fscil_bench.api",
    "run_episodes": "fscil_bench.api",
    "tune": "fscil_bench.api",
}

__all__ = [
    "FscilError",
    "Options",
    "StoredRun",
    "Workers",
    "__version__",
    "check",
    "export_features",
    "load_episodes",
    "load_runs",
    "make_report",
    "run",
    "run_episodes",
    "tune",
]


def __getattr__(name: str) -> Any:
    # Importing the package must stay cheap: torch and pandas load with the first call, not before.
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'fscil_bench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__", "__path__"]
