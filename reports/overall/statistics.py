"""Statistics of methods over several tasks, of whose runs chance alone is resampled.

The ideas are rliable's (Agarwal et al., NeurIPS 2021). Seeds draw the same shots for every method,
so that they are resampled for all methods together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

RESAMPLES = 2000
DRAWS = 20_000
"""Of the posterior: a probability is then known to 0.007, twice its standard error at most."""
PRIOR = 0.5
"""Weight of the prior's one difference of 0, in tasks."""
QUARTERS = (0.25, 0.75)

Task = np.ndarray
"""One task's values, (methods, runs): a column holds the runs of one seed."""


def resampled(task: Task, random: np.random.Generator) -> np.ndarray:
    """Return (resamples, methods, runs) of a task, its runs drawn with replacement."""
    runs = task.shape[1]
    drawn = task[:, random.integers(runs, size=(RESAMPLES, runs))]
    return drawn.transpose(1, 0, 2)


def mean_ranks(means: np.ndarray) -> np.ndarray:
    """Return each method's rank, 1 for the highest mean, averaged over tasks; ties share theirs.

    Args:
        means: (..., tasks, methods).
    """
    from scipy.stats import rankdata

    ranks: np.ndarray = rankdata(-means, axis=-1).mean(axis=-2)
    return ranks


def interquartile_mean(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half along the last axis, by weight.

    With equal weights and a count that 4 divides it is the mean without a quarter at either end.

    Args:
        values: (..., n).
        weights: (n,), which add up to 1.
    """
    order = np.argsort(values, axis=-1)
    upper = np.cumsum(weights[order], axis=-1)
    inside = np.clip(upper, *QUARTERS) - np.clip(upper - weights[order], *QUARTERS)
    middle: np.ndarray = (np.take_along_axis(values, order, -1) * inside).sum(axis=-1)
    return middle / (QUARTERS[1] - QUARTERS[0])


def summary(methods: Sequence[str], tasks: Sequence[Task]) -> pd.DataFrame:
    """Return mean rank and interquartile mean of each method, with 95 % bootstrap intervals.

    Resamples are stratified: runs are drawn within each task. A task counts once, however many
    runs it has. Where one has a single run there is no interval.
    """
    random = np.random.default_rng(0)
    drawn = [resampled(task, random) for task in tasks]
    weights = np.concatenate([np.full(t.shape[1], 1 / t.shape[1] / len(tasks)) for t in tasks])
    found = {
        "rank": (
            mean_ranks(np.stack([task.mean(axis=-1) for task in tasks])),
            mean_ranks(np.stack([each.mean(axis=-1) for each in drawn], axis=1)),
        ),
        "iqm": tuple(
            interquartile_mean(np.concatenate(each, axis=-1), weights) for each in (tasks, drawn)
        ),
    }
    columns: dict[str, np.ndarray] = {}
    for name, (value, samples) in found.items():
        low, high = _bounds(samples, tasks)
        columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
    return pd.DataFrame(columns, index=pd.Index(methods, name="label"))


def profile(tasks: Sequence[Task], thresholds: np.ndarray) -> np.ndarray:
    """Return (methods, thresholds): the share of runs that reach a threshold, averaged over tasks.

    The performance profile of Dolan and Moré (2002) on scores, as rliable draws it.
    """
    shares = [(task[:, :, None] >= thresholds).mean(axis=1) for task in tasks]
    mean: np.ndarray = np.mean(shares, axis=0)
    return mean


def improvement(tasks: Sequence[Task]) -> tuple[float, float, float]:
    """Return the probability that a run of the first of two methods is above one of the second.

    Averaged over tasks, equal runs counting half, with the ends of its 95 % interval, from
    stratified resamples; NaN where a task has a single run.
    """
    random = np.random.default_rng(0)
    value = np.mean([_above(task) for task in tasks])
    samples = np.mean([_above(resampled(task, random)) for task in tasks], axis=0)
    low, high = _bounds(samples, tasks)
    return float(value), float(low), float(high)


def _bounds(samples: np.ndarray, tasks: Sequence[Task]) -> np.ndarray:
    """Return the ends of the 95 % interval (2, ...), NaN where a task has a single run."""
    ends: np.ndarray = np.quantile(samples, (0.025, 0.975), axis=0)
    return ends if all(task.shape[1] > 1 for task in tasks) else np.full_like(ends, np.nan)


def _above(task: np.ndarray) -> np.ndarray:
    """Return the share of pairs of runs, of (..., 2, runs), in which the first is above."""
    first, second = task[..., 0, :, None], task[..., 1, None, :]
    share: np.ndarray = ((first > second) + 0.5 * (first == second)).mean(axis=(-2, -1))
    return share


def signed_rank_posterior(differences: Sequence[float], rope: float) -> tuple[float, float, float]:
    """Return the probabilities that the first is better, both are equal, and the second is better.

    The Bayesian signed-rank test (Benavoli et al., ICML 2014; JMLR 2017, section 4.2) with a
    Dirichlet process whose prior is one difference of 0: of each draw of weights it counts which of
    the three has most of the weight of all pairs' mean differences.

    Args:
        differences: one for each independent data set, positive where the first is better.
        rope: differences up to which two methods are practically equal.
    """
    z = np.array([0.0, *differences])
    weights = np.random.default_rng(0).dirichlet([PRIOR, *np.ones(len(differences))], DRAWS)
    means = (z[:, None] + z) / 2
    # What lies on the edge counts half, to either side of it.
    better, worse = (
        ((weights @ np.heaviside(side - rope, 0.5)) * weights).sum(axis=1)
        for side in (means, -means)
    )
    most = np.argmax([better, 1 - better - worse, worse], axis=0)
    first, equal, second = np.bincount(most, minlength=3) / DRAWS
    return float(first), float(equal), float(second)
