"""Random generators derived from named axes, so that nothing is seeded globally."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch

Axis = str | int | float


@dataclass(frozen=True)
class Randomness:
    """A point in the space of named axes (seed, split, session, purpose ...).

    Generators for different purposes are independent of one another and of the order in which
    they are asked for; the same axes give the same stream.
    """

    axes: tuple[Axis, ...]

    def child(self, *more: Axis) -> Randomness:
        """Return the randomness of this point refined by further axes."""
        return Randomness((*self.axes, *more))

    def seed(self, *purpose: Axis) -> int:
        """Return the 63-bit seed that belongs to these axes and `purpose`."""
        text = json.dumps([*self.axes, *purpose])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

    def numpy(self, *purpose: Axis) -> np.random.Generator:
        """Return a NumPy generator for `purpose`."""
        import numpy as np

        return np.random.default_rng(self.seed(*purpose))

    def torch(self, *purpose: Axis) -> torch.Generator:
        """Return a CPU torch generator for `purpose`."""
        import torch

        return torch.Generator().manual_seed(self.seed(*purpose))
