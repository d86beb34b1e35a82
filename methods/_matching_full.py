"""Matching losses in all dimensions at once: Gaussians with full covariances, optimal transport."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

EMD_ITERATIONS = 1_000_000
"""Pivots after which the network simplex gives up."""


@dataclass
class Convergence:
    """How often a solver ran, and how often it stopped short of the optimum."""

    solved: int = 0
    stopped: int = 0


def full_divergence(
    generated: torch.Tensor,
    real: torch.Tensor,
    loss: Literal["kl", "js", "hellinger"],
    ridge: torch.Tensor,
) -> torch.Tensor:
    """Return the divergence (classes,) of the Gaussians fitted to two sets of samples.

    Args:
        generated: samples (classes, n, D).
        real: features (classes, m, D) of the same classes.
        loss: KL(generated‖real), Jensen–Shannon, or −log of the Bhattacharyya coefficient.
        ridge: added to every variance, a scalar.
    """
    p, q = _fitted(generated, ridge), _fitted(real, ridge)
    if loss == "kl":
        return torch.distributions.kl_divergence(p, q)
    if loss == "hellinger":
        return full_bhattacharyya(p, q)
    return full_js(p, q, generated, real)


def _fitted(samples: torch.Tensor, ridge: torch.Tensor) -> torch.distributions.MultivariateNormal:
    """Return the Gaussians (classes) fitted to samples (classes, n, D), with a ridge."""
    mean = samples.mean(dim=1)
    centred = samples - mean[:, None]
    scatter = centred.mT @ centred / (samples.shape[1] - 1)
    eye = torch.eye(samples.shape[2], dtype=samples.dtype, device=samples.device)
    chol = torch.linalg.cholesky(scatter + ridge * eye)
    return torch.distributions.MultivariateNormal(mean, scale_tril=chol, validate_args=False)


def full_bhattacharyya(
    p: torch.distributions.MultivariateNormal, q: torch.distributions.MultivariateNormal
) -> torch.Tensor:
    """Return −log of the Bhattacharyya coefficient (classes,) of Gaussians in D dimensions."""
    middle = torch.linalg.cholesky((p.covariance_matrix + q.covariance_matrix) / 2)
    gap = (p.loc - q.loc)[..., None]
    distance = torch.linalg.solve_triangular(middle, gap, upper=False).square().sum(dim=(-2, -1))
    own = 0.5 * (_log_det(p.scale_tril) + _log_det(q.scale_tril))
    bhattacharyya: torch.Tensor = distance / 8 + 0.5 * (_log_det(middle) - own)
    return bhattacharyya


def _log_det(chol: torch.Tensor) -> torch.Tensor:
    return 2 * chol.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)


def full_js(
    p: torch.distributions.MultivariateNormal,
    q: torch.distributions.MultivariateNormal,
    from_p: torch.Tensor,
    from_q: torch.Tensor,
) -> torch.Tensor:
    """Return a Monte Carlo estimate (classes,) of the JS divergence of Gaussians p and q.

    `from_p` and `from_q` (classes, n, D) are the samples that p and q were fitted to.
    """
    left = _log_ratio(q, p, from_p)
    right = _log_ratio(p, q, from_q)
    return math.log(2) - 0.5 * (F.softplus(left).mean(dim=1) + F.softplus(right).mean(dim=1))


def _log_ratio(
    top: torch.distributions.MultivariateNormal,
    bottom: torch.distributions.MultivariateNormal,
    samples: torch.Tensor,
) -> torch.Tensor:
    """Return log top(x)/bottom(x) (classes, n) at samples (classes, n, D)."""
    points = samples.transpose(0, 1)
    difference: torch.Tensor = top.log_prob(points) - bottom.log_prob(points)  # type: ignore[no-untyped-call]
    return difference.T


def exact_emd(
    generated: torch.Tensor, real: torch.Tensor, convergence: Convergence | None = None
) -> torch.Tensor:
    """Return the earth mover's distance, a scalar, between samples (n, D) and (m, D).

    The transport plan is optimal for Euclidean cost (POT's network simplex, cubic in n). A plan
    that the solver left short of the optimum is used as it is, and counted in `convergence`.
    """
    import ot

    cost = torch.cdist(generated, real, compute_mode="donot_use_mm_for_euclid_dist")
    plain = cost.detach().double().cpu().numpy()
    plan, log = ot.emd([], [], plain, numItermax=EMD_ITERATIONS, log=True)
    if convergence is not None:
        convergence.solved += 1
        convergence.stopped += log["warning"] is not None
    weights = torch.as_tensor(plan, dtype=cost.dtype, device=cost.device)
    return (weights * cost).sum()
