"""LDC's incremental objective: the cosine classifier alone, on few-shot and calibrated features."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F

from fscil_bench.errors import FscilError
from fscil_bench.method import batches

from .params import LdcParams
from .sampler import GaussianSampler

BLOCK_BYTES = 64 * 2**20
"""Memory that the noise of epochs drawn together may take."""

BLOCK_SAMPLES = 1024
"""Samples of a class beyond which drawing more epochs together brings nothing."""

TINY = 1e-12
"""Least length by which a row is divided."""

LEAST_GAIN = 0.2
"""How much more likely than chance class means must be, in mean log probability, to be trained."""

CHECKED_SAMPLES = 32
"""Calibrated samples of a class on which trained rows are compared with class means."""

SHORTFALL = 0.05
"""How much less of these samples than class means rows may put in their class, and be kept."""


def separable(means: torch.Tensor, temperature: float) -> bool:
    """Return whether the cosine classifier's softmax tells classes of these means (C, D) apart.

    It does where a class's own mean has, in the geometric mean over classes, exp(`LEAST_GAIN`)
    times the probability of chance, 1/C. Below, which takes cosines of nearly 1 between all
    classes, gradients hardly depend on a sample's class: the few-shot term and what batches lack
    of balance turn rows in the direction that all classes share by more than classes differ.
    """
    unit = F.normalize(means, dim=1)
    own = F.log_softmax(temperature * unit @ unit.T, dim=1).diagonal()
    return float(own.mean()) + math.log(len(means)) >= LEAST_GAIN


def train_classifier(
    means: torch.Tensor,
    first_new: int,
    sampler: GaussianSampler,
    shots: torch.Tensor,
    targets: torch.Tensor,
    params: LdcParams,
    generator: torch.Generator,
) -> tuple[torch.Tensor, list[float]]:
    """Train the classifier on few-shot features and calibrated samples of all classes.

    The incremental objective, over θ_c alone. An epoch draws `samples_per_class` fresh samples
    of every class and passes through them once, in mini-batches that are balanced over classes.

    Args:
        means: where the rows (C, D) start; their lengths are kept.
        first_new: the first row of the session's classes.
        sampler: draws calibrated samples of the C classes.
        shots: the session's features (n, D).
        targets: their rows (n,).
        params: weights, rates and sizes.
        generator: what all draws come from.

    Returns:
        The trained rows (C, D), and the mean loss of every epoch.

    Raises:
        FscilError: a loss or the rows are not finite.
    """
    p = params
    losses: list[float] = []
    if p.sampled_weight == 0 and p.few_shot_weight == 0:
        return means, losses
    rows, shots = F.normalize(means, dim=1), F.normalize(shots, dim=1)
    frozen = first_new if p.train_rows == "new" else 0
    shot_weights = shots.new_full((len(shots),), p.few_shot_weight / len(shots))
    for pool, order in _epochs(sampler, p, generator):
        parts = []
        for features, labels in balanced_batches(pool, order, p.batch_size):
            weights = features.new_full((len(features),), p.sampled_weight / len(features))
            if p.few_shot_weight > 0:
                features, labels = torch.cat([features, shots]), torch.cat([labels, targets])
                weights = torch.cat([weights, shot_weights])
            loss, gradient = cross_entropy(rows, features, labels, weights, p.temperature)
            gradient[:frozen] = 0
            rows = rows - p.lr * gradient
            parts.append(loss)
        losses.append(float(torch.stack(parts).mean()))
        if not (math.isfinite(losses[-1]) and bool(torch.isfinite(rows).all())):
            raise FscilError(
                f"method 'ldc': the classifier diverges (loss {losses[-1]:g}) in epoch "
                f"{len(losses)}; lower lr = {p.lr:g}"
            )
    return F.normalize(rows, dim=1) * means.norm(dim=1, keepdim=True), losses


def falls_short(rows: torch.Tensor, sampler: GaussianSampler, generator: torch.Generator) -> bool:
    """Return whether rows (C, D) put clearly fewer calibrated samples in their class than means do.

    The loss does not tell: that of class means is high, as a softmax of their cosines is not sure
    of anything, though nearly all decisions may be right.
    """
    samples = F.normalize(sampler.draw(CHECKED_SAMPLES, generator), dim=2)
    own = torch.arange(len(rows), device=samples.device)[:, None]
    reached, at_means = (
        float(((samples @ F.normalize(each, dim=1).T).argmax(dim=2) == own).float().mean())
        for each in (rows, sampler.means)
    )
    return reached < at_means - SHORTFALL


def cross_entropy(
    rows: torch.Tensor,
    features: torch.Tensor,
    labels: torch.Tensor,
    weights: torch.Tensor,
    temperature: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted cross-entropy of the cosine classifier, and its gradient.

    Written out, since thousands of small steps spend most of their time in an autograd graph.

    Args:
        rows: classifier rows (C, D) of any length.
        features: unit vectors (n, D).
        labels: their rows (n,).
        weights: the weight (n,) of each one's cross-entropy.
        temperature: factor on the cosines.

    Returns:
        The loss, a scalar, and its gradient (C, D) with respect to `rows`.
    """
    norms = rows.norm(dim=1, keepdim=True).clamp(min=TINY)
    unit = rows / norms
    log_p = F.log_softmax(temperature * features @ unit.T, dim=1)
    own = torch.arange(len(labels), device=labels.device), labels
    loss = -(weights @ log_p[own])
    residual = log_p.exp()
    residual[own] -= 1
    direct = (residual * (temperature * weights)[:, None]).T @ features
    along = (unit * direct).sum(dim=1, keepdim=True)
    return loss, (direct - along * unit) / norms


def _epochs(
    sampler: GaussianSampler, params: LdcParams, generator: torch.Generator
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield every epoch's samples (classes, count, D) as unit vectors, and their order.

    Several epochs are computed at once, as one product of matrices is faster than many thin ones.
    """
    count, (classes, dim) = params.samples_per_class, sampler.means.shape
    fit = BLOCK_BYTES // (4 * classes * count * max(dim, sampler.rank))
    for block in batches(params.epochs, max(1, min(BLOCK_SAMPLES // count, fit))):
        noise, orders = [], []
        for _ in range(block.start, block.stop):
            noise.append(sampler.noise(count, generator))
            orders.append(_balanced_order(count, classes, generator))
        samples = F.normalize(sampler.calibrated(torch.cat(noise, dim=1)), dim=2)
        yield from zip(torch.split(samples, count, dim=1), orders, strict=True)


def _balanced_order(count: int, classes: int, generator: torch.Generator) -> torch.Tensor:
    """Return `count` random orders of the classes, (count, classes)."""
    draws = torch.rand(count, classes, generator=generator, device=generator.device)
    return draws.argsort(dim=1)


def balanced_batches(
    pool: torch.Tensor, order: torch.Tensor, size: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield mini-batches of samples and labels from a pool (classes, count, D), each sample once.

    Every class comes up once before any comes up again, in the order (count, classes) given.
    """
    labels = order.flatten()
    rounds = torch.arange(len(order), device=order.device).repeat_interleave(order.shape[1])
    for part in batches(len(labels), size):
        yield pool[labels[part], rounds[part]], labels[part]
