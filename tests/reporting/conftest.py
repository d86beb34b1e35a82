"""Rows chosen from hand-made runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.choice import Chosen, chosen
from fscil_bench.reporting.frame import Results
from fscil_bench.request import Selection
from fscil_bench.store.runs import StoredRun


@pytest.fixture
def rows(registry: Registry) -> Callable[..., Chosen]:
    """Return a function that gives the rows of runs, as `asked` selects them."""

    def of(*runs: StoredRun, **asked: Any) -> Chosen:
        return chosen(Results(registry, Selection(**asked), runs))

    return of
