"""What scores say beyond the predictions, kept with a run's named arrays."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch

from fscil_bench.method import Method
from fscil_bench.metrics import CONFIDENCE, OWN
from fscil_bench.protocol import Queries


class Recorded:
    """A method that gives, among its artifacts, what its scores of the session's queries say.

    `scores/confidence`: (n,) float32, the softmax of the scores at the predicted class.
    `scores/own`: (2, n) int16, the best of the base classes, and the best of all later ones, −1
    where there are none.
    """

    def __init__(self, method: Method, base_classes: int) -> None:
        self._method, self._base_classes = method, base_classes
        self._scores: list[torch.Tensor] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the method's scores, and remember them; whoever asked checks them."""
        found = self._method.scores(queries)
        self._scores.append(found)
        return found

    def artifacts(self) -> dict[str, np.ndarray]:
        """Return the method's arrays and those of the scores since the last call."""
        scores, self._scores = torch.cat(self._scores).detach().float().cpu(), []
        base, new = scores[:, : self._base_classes], scores[:, self._base_classes :]
        own = [
            each.argmax(1) if each.shape[1] else torch.full((len(each),), -1)
            for each in (base, new)
        ]
        own[1] += self._base_classes * (own[1] >= 0)
        said = {
            CONFIDENCE: scores.softmax(1).amax(1).numpy(),
            OWN: torch.stack(own).numpy().astype(np.int16),
        }
        return {**self._method.artifacts(), **said}


def recorded(method: Method, base_classes: int) -> Method:
    """Return the method so that it remembers its scores."""
    return cast(Method, Recorded(method, base_classes))
