"""Tensors of several parts in one mapping, each part under a prefix of its own."""

from __future__ import annotations

from collections.abc import Mapping

import torch


def prefixed(prefix: str, module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's tensors, each name with `prefix` before it."""
    return {prefix + name: value for name, value in module.state_dict().items()}


def part_of(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """Return the tensors whose names begin with `prefix`, without it."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
