"""What a run takes beside the seconds of its sessions: memory, the machine and how busy it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from fscil_bench.store.tensors import FileCheckpoint
from fscil_bench.training.compute import (
    environment,
    forget_peak_memory,
    load_per_core,
    peak_memory,
)


@dataclass
class Costs:
    """Counts them from now on, and keeps them in a run's checkpoint: a stop may lie between.

    Attributes:
        device: where the run is made.
        checkpoint: where the state of its sessions is kept.
    """

    device: torch.device
    checkpoint: FileCheckpoint
    _before: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin to count."""
        forget_peak_memory()

    def load(self) -> dict[str, Any] | None:
        """Return the state that was kept; see `fscil_bench.method.Checkpoint`."""
        state = self.checkpoint.load()
        self._before = state.pop("costs", {}) if state else {}
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Keep the state, and what it took so far."""
        self.checkpoint.save(state | {"costs": self.told()})

    def told(self) -> dict[str, Any]:
        """Return them as they are recorded; `before` are other machines, from before a stop."""
        own, earlier = environment(self.device), dict(self._before.get("environment", {}))
        before = [each for each in (*earlier.pop("before", ()), earlier) if each and each != own]
        return {
            "peak_memory": max(peak_memory(), self._before.get("peak_memory", 0)),
            "load": max(load_per_core(), self._before.get("load", 0.0)),
            "environment": own | ({"before": before} if before else {}),
        }
