"""Matching losses: how far generated features lie from real ones, differentiable at any D."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F

Loss = Literal["kl", "js", "hellinger", "emd"]
Directions = Literal["sliced", "full"]

RIDGE = 1e-2
"""Added to every variance, as a fraction of the real features' mean variance."""

TINY = 1e-12
"""Added to every variance, so that features without spread have finite divergences."""

JS_NODES, JS_RANGE = 32, 6.0
"""Points, and standard deviations to either side, that JS is integrated over for each Gaussian."""

FULL_SAMPLES_PER_DIM = 8
"""Generated samples for each dimension below which a full covariance is mostly noise."""

EMD_ITERATIONS = 1_000_000
"""Pivots after which the network simplex gives up."""


@dataclass
class Convergence:
    """How often a solver ran, and how often it stopped short of the optimum."""

    solved: int = 0
    stopped: int = 0


def matching_loss(
    generated: torch.Tensor,
    real: torch.Tensor,
    loss: Loss,
    directions: torch.Tensor | None,
    convergence: Convergence | None = None,
    axes: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return L_m, averaged over classes: how far generated features are from real ones.

    Args:
        generated: samples (classes, n, D) of the calibrated distributions.
        real: features (classes, m, D) of the same classes.
        loss: `kl` is KL(generated‖real) between Gaussians; `js` the Jensen–Shannon divergence and
            `hellinger` −log of the Bhattacharyya coefficient between them; `emd` the earth
            mover's distance between the samples themselves.
        directions: unit vectors (D, k). One-dimensional divergences are averaged over the D
            coordinate axes and these directions; None compares in all dimensions at once.
        convergence: counts plans that the solver of the full `emd` left short of the optimum.
        axes: the coordinate axes (j,) to take in place of all D, beside `directions`.

    Returns:
        A scalar, zero for identical samples, differentiable with respect to `generated`.
    """
    if directions is None:
        return _full_loss(generated, real, loss, convergence)
    generated, real = (_projected(x, directions, axes) for x in (generated, real))
    if loss == "emd":
        return emd_1d(generated, real).mean()
    m1, v1 = generated.mean(dim=1), generated.var(dim=1)
    m2, v2 = real.mean(dim=1), real.var(dim=1)
    ridge = RIDGE * v2.mean() + TINY
    divergence = {"kl": gaussian_kl, "js": gaussian_js, "hellinger": gaussian_bhattacharyya}[loss]
    return divergence(m1, v1 + ridge, m2, v2 + ridge).mean()


def random_directions(dim: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Return `count` unit vectors, uniform on the sphere, as the columns of (dim, count)."""
    vectors = torch.randn(dim, count, generator=generator, device=generator.device)
    return F.normalize(vectors, dim=0)


def random_axes(dim: int, count: int, generator: torch.Generator) -> torch.Tensor | None:
    """Return `count` of the axes 0 … dim−1, or None, all of them, where there are no more."""
    if dim <= count:
        return None
    return torch.randperm(dim, generator=generator, device=generator.device)[:count]


def _projected(
    samples: torch.Tensor, directions: torch.Tensor, axes: torch.Tensor | None
) -> torch.Tensor:
    """Return samples (..., D) on the axes and the directions, (..., D + k)."""
    own = samples if axes is None else samples[..., axes]
    return torch.cat([own, samples @ directions], dim=-1)


def gaussian_kl(
    m1: torch.Tensor, v1: torch.Tensor, m2: torch.Tensor, v2: torch.Tensor
) -> torch.Tensor:
    """Return KL(N(m1, v1)‖N(m2, v2)) entry by entry, for means and variances of one shape."""
    return 0.5 * (torch.log(v2 / v1) + (v1 + (m1 - m2).square()) / v2 - 1)


def gaussian_bhattacharyya(
    m1: torch.Tensor, v1: torch.Tensor, m2: torch.Tensor, v2: torch.Tensor
) -> torch.Tensor:
    """Return −log of the Bhattacharyya coefficient BC of N(m1, v1) and N(m2, v2), by entry.

    The squared Hellinger distance is 1 − BC; its gradient vanishes for distant distributions,
    that of −log BC does not, and the two have the same order.
    """
    total = v1 + v2
    return 0.25 * (m1 - m2).square() / total + 0.5 * torch.log(total / (2 * (v1 * v2).sqrt()))


def gaussian_js(
    m1: torch.Tensor, v1: torch.Tensor, m2: torch.Tensor, v2: torch.Tensor
) -> torch.Tensor:
    """Return the Jensen–Shannon divergence of N(m1, v1) and N(m2, v2), by entry, in nats.

    It has no closed form. The trapezoidal rule runs over points spaced evenly in the standard
    deviations of either Gaussian, so that a narrow one inside a wide one is not missed.
    """
    t = torch.linspace(-JS_RANGE, JS_RANGE, JS_NODES, dtype=m1.dtype, device=m1.device)
    t = t.view(-1, *[1] * m1.ndim)
    x = torch.cat([m1 + v1.sqrt() * t, m2 + v2.sqrt() * t]).sort(dim=0).values
    log_p, log_q = _log_density(x, m1, v1), _log_density(x, m2, v2)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    halves = log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)
    return 0.5 * torch.trapezoid(halves, x, dim=0)


def _log_density(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    return -0.5 * ((x - mean).square() / variance + torch.log(2 * math.pi * variance))


def emd_1d(generated: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return the earth mover's distance (..., k) of sample columns (..., n, k) and (..., m, k).

    In one dimension it is the area between the two quantile functions, which are constant
    between the levels i/n and j/m.
    """
    left, right, lengths = _quantile_pieces(generated.shape[-2], real.shape[-2])
    u = generated.sort(dim=-2).values[..., left, :]
    v = real.sort(dim=-2).values[..., right, :]
    weights = torch.as_tensor(lengths, dtype=u.dtype, device=u.device)
    distance: torch.Tensor = torch.einsum("p,...pk->...k", weights, (u - v).abs())
    return distance


@cache
def _quantile_pieces(n: int, m: int) -> tuple[list[int], list[int], list[float]]:
    """Return, for each piece of [0, 1], the order statistic of either sample and the length."""
    levels = sorted({i * m for i in range(n + 1)} | {j * n for j in range(m + 1)})
    starts, ends = levels[:-1], levels[1:]
    lengths = [(end - start) / (n * m) for start, end in zip(starts, ends, strict=True)]
    return [start // m for start in starts], [start // n for start in starts], lengths


def _full_loss(
    generated: torch.Tensor, real: torch.Tensor, loss: Loss, convergence: Convergence | None
) -> torch.Tensor:
    if loss == "emd":
        pairs = zip(generated, real, strict=True)
        return torch.stack([exact_emd(g, r, convergence) for g, r in pairs]).mean()
    ridge = RIDGE * real.var(dim=1).mean() + TINY
    return full_divergence(generated, real, loss, ridge).mean()


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
