"""Long stages of learning from base data, which go on after a stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn

from fscil_bench.method import Checkpoint

SAVED_EVERY = 60.0
"""Seconds after which a stage's state is kept, when an epoch has ended."""

Part = nn.Module | torch.optim.Optimizer | torch.optim.lr_scheduler.LRScheduler | torch.Tensor


def epochs_left(
    epochs: int,
    parts: Mapping[str, Part],
    generator: torch.Generator,
    progress: Callable[[float], None],
    checkpoint: Checkpoint | None,
) -> Iterator[int]:
    """Yield the epochs of a stage that are left, and tell the progress after each.

    Args:
        epochs: of the whole stage.
        parts: what an epoch changes, brought to where a stopped stage was.
        generator: what epochs draw from, likewise.
        progress: takes the fraction that is done.
        checkpoint: where the state is kept.
    """
    found = checkpoint.load() if checkpoint else None
    first = 0
    if found is not None:
        first = found["epochs"]
        generator.set_state(found["generator"])
        for name, part in parts.items():
            if isinstance(part, torch.Tensor):
                part.data.copy_(found["parts"][name])
            else:
                part.load_state_dict(found["parts"][name])
        progress(first / epochs)
    saved = time.monotonic()
    for epoch in range(first, epochs):
        yield epoch
        if checkpoint and time.monotonic() - saved >= SAVED_EVERY:
            state = {
                name: part.detach().cpu() if isinstance(part, torch.Tensor) else part.state_dict()
                for name, part in parts.items()
            }
            known = {"epochs": epoch + 1, "generator": generator.get_state()}
            checkpoint.save({**known, "parts": state})
            saved = time.monotonic()
        progress((epoch + 1) / epochs)
