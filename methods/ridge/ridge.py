"""Ridge regression on expanded features, of which sums over samples are all that is kept."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F

from fscil_bench.errors import UsageError
from fscil_bench.method import Method, MethodContext, batches
from fscil_bench.protocol import Queries, Session

from .._shared.statistics import in_space

BLOCK = 2048
"""Columns of a Gram matrix that are computed at once, of which the upper blocks are left out."""

CHUNK_BYTES = 128 * 2**20
"""Memory that expanded features may take, of the samples that are expanded at once."""

EACH = 16
"""Expanded features for each feature where M is not set, up to what was published."""

MATRICES = 3
"""Gram matrices that are held while weights are solved for: G, G + λI and its factor."""


class RidgeMethod(Method):
    """What methods share that fit ridge regression to the labels as one-hot rows.

    With h(x) the expanded feature (M,) of a sample and y its class as a one-hot row,
    W = (G + λI)⁻¹·Q, where G = Σ s·h·hᵀ and Q = Σ s·h·yᵀ run over every sample so far, each with a
    weight s. Both are sums, so that what is learnt session by session is what all samples at once
    would give. Scores are h(x)ᵀ·W. Sums and solutions are computed in float64.

    A subclass sets `map_name`, the attribute that holds the tensor of its expansion, and
    implements `_expanded`; in the base session it calls `_begin` and sets `ridge`. Where G + λI is
    not positive definite as computed, λ is raised tenfold until it is, which `notes` counts.
    Features that are NaN or infinite are refused (`DataError`).
    """

    map_name: str

    def __init__(self, params: Any, context: MethodContext) -> None:
        super().__init__(params, context)
        self.gram = torch.empty(0, 0, dtype=torch.float64, device=context.device)
        self.moments = self.weights = self.gram
        self.ridge = 0.0
        self._raised = 0

    def scores(self, queries: Queries) -> torch.Tensor:
        """Return the regression's values (n, classes seen), float64."""
        return self._predicted(self._embed(queries), self.weights)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return G (M, M) and Q (M, C), float64, λ, and the tensor of the expansion."""
        ridge = torch.tensor(self.ridge, dtype=torch.float64)
        expansion = getattr(self, self.map_name)
        return {
            "gram": self.gram,
            "moments": self.moments,
            "ridge": ridge,
            self.map_name: expansion,
        }

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Restore what `state_dict` returned, and solve for the weights."""
        for name in ("gram", "moments", self.map_name):
            setattr(self, name, state[name].clone().to(self.context.device))
        self.ridge = float(state["ridge"])
        self._solve()

    def notes(self) -> dict[str, int | float | str]:
        """Return λ, and how often it had to be raised."""
        return {"ridge": self.ridge, "ridge_raised": self._raised}

    @abstractmethod
    def _expanded(self, features: torch.Tensor) -> torch.Tensor:
        """Return the expanded features (n, M), float64, of features (n, D)."""

    def _embed(self, samples: Session | Queries) -> torch.Tensor:
        return in_space(samples, device=self.context.device)

    def _predicted(self, features: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        parts = self._parts(len(features), len(weights))
        return torch.cat([self._expanded(features[part]) @ weights for part in parts])

    def _begin(self, size: int) -> None:
        """Start sums of M = `size` expanded features."""
        self.gram, self.moments = self.gram.new_zeros(size, size), self.gram.new_zeros(size, 0)

    def _add(
        self, features: torch.Tensor, rows: torch.Tensor, classes: int, weight: float = 1.0
    ) -> None:
        """Add samples (n, D), their rows (n,) among `classes` and their weight s to G and Q."""
        gram, more = self.gram.clone(), classes - self.moments.shape[1]
        moments = F.pad(self.moments, (0, more))
        for part in self._parts(len(features), len(gram)):
            expanded = self._expanded(features[part])
            moments += weight * (expanded.T @ one_hot(rows[part], classes))
            add_gram(gram, expanded, weight)
        self.gram, self.moments = gram, moments

    def _solve(self) -> None:
        found = ridge_solution(self.gram, self.moments, self.ridge)
        # Of sums that are not finite no λ is enough; the run is refused for them.
        while found is None and bool(self.gram.isfinite().all()):
            self.ridge, self._raised = 10 * self.ridge, self._raised + 1
            found = ridge_solution(self.gram, self.moments, self.ridge)
        self.weights = self.moments if found is None else found

    def _parts(self, count: int, size: int) -> list[slice]:
        return list(batches(count, max(1, CHUNK_BYTES // (8 * size))))


def expansion(asked: int | None, published: int, dim: int) -> int:
    """Return M: what was asked for, or the published number, which is meant for D of 512 and more.

    The projections or centres that fewer features carry are fewer, and a solution takes M³.
    """
    return min(published, EACH * dim) if asked is None else asked


def ridge_solution(gram: torch.Tensor, moments: torch.Tensor, ridge: float) -> torch.Tensor | None:
    """Return (G + λI)⁻¹·Q (M, C), or None where G + λI is not positive definite as computed.

    Args:
        gram: G (M, M), symmetric.
        moments: Q (M, C).
        ridge: λ > 0.
    """
    shifted = gram.clone()
    shifted.diagonal().add_(ridge)
    factor, failed = torch.linalg.cholesky_ex(shifted)
    del shifted  # the solver copies the factor
    return None if int(failed) else torch.cholesky_solve(moments, factor)


def add_gram(gram: torch.Tensor, rows: torch.Tensor, weight: float = 1.0) -> None:
    """Add s·Σ h·hᵀ over rows h (n, M) to a symmetric matrix (M, M), in place."""
    for i in batches(len(gram), BLOCK):
        for j in batches(i.stop, BLOCK):
            block = weight * (rows[:, i].T @ rows[:, j])
            gram[i, j] += block
            if i != j:
                gram[j, i] += block.T


def one_hot(rows: torch.Tensor, classes: int) -> torch.Tensor:
    """Return classifier rows (n,) as one-hot rows (n, classes), float64."""
    return F.one_hot(rows, classes).double()


def require_memory(owner: str, size: int, more: int = 0) -> None:
    """Check that the matrices of M expanded features fit into this machine.

    Args:
        owner: the parameter that sets M, as `ranpac: projections`.
        size: M; `MATRICES` matrices of M² float64 numbers are held at once.
        more: further bytes.

    Raises:
        UsageError: they take more memory than the machine has.
    """
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = MATRICES * 8 * size**2 + more
    if needed > there:
        most = int(max(0, there - more) / (MATRICES * 8)) ** 0.5
        raise UsageError(
            f"{owner} = {size} takes {needed / 2**30:.1f} GiB for matrices of {size}² numbers, and "
            f"this machine has {there / 2**30:.1f}; set it to at most {int(most)}"
        )
