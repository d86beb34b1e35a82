"""Methods across protocols and representations: ranks, profiles, and every two of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from fscil_bench.errors import FscilError, UsageError, nearest
from fscil_bench.metrics import mean_interval
from fscil_bench.report import Column, Document, Figure, Notes, Part, Report, Section, Table
from fscil_bench.reporting.measures import MEASURES, Measure, named_measures
from fscil_bench.reporting.statistics import FEWEST_PAIRS, wilcoxon_p

from .cells import Cell, Left, block, cells_of
from .figures import matrix, matrix_figure, profile_figure
from .statistics import RESAMPLES, Task, improvement, profile, signed_rank_posterior, summary

CERTAIN = 0.95
"""The posterior probability from which on a pair is told apart, or told to be equal."""
THRESHOLDS = 101
TOO_FEW, OPEN, EQUAL = "too few data sets", "cannot be told", "practically equal"
SUMMARY_COLUMNS = (
    Column("label", "Method", kind="text"),
    Column("rank", "Mean rank", kind="number"),
    Column("rank_low", "from", "95 % of rank", "number"),
    Column("rank_high", "to", "95 % of rank", "number"),
    Column("iqm", "IQM", kind="number"),
    Column("iqm_low", "from", "95 % of IQM", "number"),
    Column("iqm_high", "to", "95 % of IQM", "number"),
)
PAIR_COLUMNS = (
    Column("first", "First", kind="text", width=0.15),
    Column("second", "Second", kind="text", width=0.15),
    Column("cells", "Cells", kind="number", decimals=0),
    Column("datasets", "Data sets", kind="number", decimals=0),
    Column("gain", "Gain", kind="number"),
    Column("wins", "Wins/ties/losses", kind="text"),
    Column("improvement", "P(run above)", kind="number"),
    Column("improvement_low", "from", "95 % of P(run above)", "number"),
    Column("improvement_high", "to", "95 % of P(run above)", "number"),
    Column("p_first", "First better", "Posterior", "number"),
    Column("p_equal", "Equal", "Posterior", "number"),
    Column("p_second", "Second better", "Posterior", "number"),
    Column("p", "Wilcoxon p", kind="number", decimals=4),
    Column("outcome", "Outcome", kind="text", width=0.12, bold=True),
)


class Overall(Report):
    """Methods with nothing set by hand, over all stored protocols and representations.

    `fscil-bench report overall`; `--protocol`, `--method` and `--representation` narrow it.
    """

    name = "overall"
    title = "Methods across protocols and representations: ranks, profiles, every two compared"

    @dataclass(frozen=True)
    class Params:
        """`measure`: what is compared, by name. `against`: one method, compared with the others.

        `rope`: up to which difference, in the measure's unit, two methods are practically equal.
        Runs on other shots, sessions or recipe than their protocol's (`--base-classes`,
        `--epochs`) are left out; with `all` they make cells of their own.
        """

        measure: str = "last"
        against: str = ""
        rope: float = 1.0
        all: bool = False

        def __post_init__(self) -> None:
            """Refuse what cannot be compared.

            Raises:
                UsageError: there is no such measure, or the region has a negative width.
            """
            if len(named_measures(self.measure)) != 1:
                raise UsageError("measure is one name, such as last")
            if not self.rope >= 0:
                raise UsageError(f"rope is {self.rope}: no difference is that small; 0 or more")

    def build(self, frame: pd.DataFrame, params: Params) -> Document:
        """Return ranks, profiles and pairs.

        Raises:
            FscilError: there are not two methods in one cell.
        """
        del frame
        measure = MEASURES[params.measure.strip()]
        cells, left = cells_of(self.results, measure.key, params.all)
        methods, ranked = block(cells)
        if len(methods) < 2 or not ranked:
            raise FscilError(_nothing(cells, left, measure))
        sign = -1 if measure.better == "lowest" else 1
        tasks = [sign * cell.task(methods) for cell in ranked]
        sums = summary(methods, tasks).sort_values("rank", kind="stable")
        signed = ["iqm", "iqm_low", "iqm_high"] if sign > 0 else ["iqm", "iqm_high", "iqm_low"]
        sums[["iqm", "iqm_low", "iqm_high"]] = sign * sums[signed].to_numpy()
        rest = [m for m in dict.fromkeys(m for c in cells for m in c.runs) if m not in methods]
        pairs = _pairs([*sums.index, *rest], cells, params, sign)
        parts: list[Part] = [
            Notes([_scope(cells), *_conclusions(sums, pairs, ranked, measure)]),
            Table("overall", sums, SUMMARY_COLUMNS, caption=_ranked_text(ranked)),
            _cell_table(list(sums.index), ranked, measure),
            _figure(sums, ranked, measure),
            Section("Every two methods", [*_pair_parts(pairs, [*sums.index, *rest], measure)]),
            _rule(params, measure),
        ]
        if lines := [*_left_out(cells, methods, ranked), *left.notes]:
            parts.append(Notes(lines, "Left out"))
        return Document(f"{self.title.partition(':')[0]}: {measure.heading}", parts, left.lacks)


def _nothing(cells: Sequence[Cell], left: Left, measure: Measure) -> str:
    """Say why there are not two methods to compare, and what makes them."""
    lines = [
        f"no two methods with nothing set by hand have {measure.heading} of the same seeds for one "
        "protocol on one representation"
    ]
    lines += [*(line for cell in cells for line in cell.apart()), *left.notes]
    if left.lacks:
        lines += ["runs lack what it is counted from; made again they have it:"]
        lines += [lack.command for lack in left.lacks]
    else:
        lines[0] += "; fscil-bench run --method ncm,ldc --protocol NAME makes two"
    return "\n  ".join(lines)


def _pairs(methods: Sequence[str], cells: Sequence[Cell], params: Any, sign: int) -> pd.DataFrame:
    """Return a line for each two methods, from the cells that both have: no third one matters."""
    against = params.against.strip()
    known = {method.lower(): method for method in methods}
    if against and against.lower() not in known:
        raise UsageError(f"no method {against!r} is compared here; {nearest(against, methods)}")
    two = [(known[against.lower()], m) for m in methods] if against else combinations(methods, 2)
    lines = []
    for first, second in two:
        tasks = {c: t for c in range(len(cells)) if (t := cells[c].task([first, second])).size}
        if first != second and tasks:
            found = {cells[c].name: sign * task for c, task in tasks.items()}
            datasets = [cells[c].dataset for c in tasks]
            own = _pair(list(found.values()), datasets, params.rope)
            lines.append({"first": first, "second": second, **own})
    if not lines:
        raise UsageError(f"{against} shares no seed with another method in any cell")
    return pd.DataFrame(lines)


def _pair(tasks: Sequence[Task], datasets: Sequence[str], rope: float) -> dict[str, Any]:
    # Differences of counts that are equal leave 1e-14.
    gains = np.round([float((task[0] - task[1]).mean()) for task in tasks], 9)
    by_dataset = pd.Series(gains).groupby(list(datasets)).mean().tolist()
    value, low, high = improvement(tasks)
    # Of one or two data sets the prior decides what is likely: nothing is claimed.
    enough = len(by_dataset) >= FEWEST_PAIRS
    posterior = signed_rank_posterior(by_dataset, rope) if enough else (math.nan,) * 3
    likely = ("first better", EQUAL, "second better")[int(np.argmax(posterior))]
    return {
        "cells": len(tasks),
        "datasets": len(by_dataset),
        "gain": float(gains.mean()),
        "wins": f"{(gains > 0).sum()}/{(gains == 0).sum()}/{(gains < 0).sum()}",
        "improvement": value,
        "improvement_low": low,
        "improvement_high": high,
        **dict(zip(("p_first", "p_equal", "p_second"), posterior, strict=True)),
        "p": wilcoxon_p(by_dataset) if enough else math.nan,
        "outcome": TOO_FEW if not enough else likely if max(posterior) > CERTAIN else OPEN,
    }


def _scope(cells: Sequence[Cell]) -> str:
    """Say how many independent data sets there are, and whether these are enough."""
    datasets = sorted({cell.dataset for cell in cells})
    text = (
        f"{len(cells)} cell{'s' * (len(cells) > 1)} (a protocol on a representation) of "
        f"{len(datasets)} data set{'s' * (len(datasets) > 1)}: {', '.join(datasets)}."
    )
    if len(datasets) < FEWEST_PAIRS:
        text += (
            f" Too few to conclude for others: from fewer than {FEWEST_PAIRS} data sets no test "
            "can reach 5 %, whatever they are. What stands here describes these cells; intervals "
            "are of chance in their runs alone."
        )
    return text


def _conclusions(
    sums: pd.DataFrame, pairs: pd.DataFrame, ranked: Sequence[Cell], measure: Measure
) -> Iterator[str]:
    best = sums.iloc[0]
    bounds = f"95 % interval {best['rank_low']:.2f} to {best['rank_high']:.2f}"
    if math.isnan(best["rank_low"]):
        bounds = "no interval, as a cell has a single run"
    yield (
        f"Best mean rank in {measure.heading}: {best.name}, {best['rank']:.2f} ({bounds}) of "
        f"{len(sums)} methods over {len(ranked)} cell{'s' * (len(ranked) > 1)}."
    )
    told = pairs[pairs["outcome"].isin(["first better", "second better", EQUAL])]
    if (pairs["datasets"] >= FEWEST_PAIRS).any():
        yield f"{len(told)} of {len(pairs)} pairs are told apart or told to be equal."


def _ranked_text(ranked: Sequence[Cell]) -> str:
    return f"Over {', '.join(cell.name for cell in ranked)}."


def _cell_table(methods: Sequence[str], ranked: Sequence[Cell], measure: Measure) -> Table:
    lines = []
    for method in methods:
        line: dict[str, Any] = {"label": method}
        for number, cell in enumerate(ranked):
            own = mean_interval(cell.runs[method].tolist())
            parts = {"mean": own.mean, "half_width": own.half_width, "n": own.count}
            line |= {f"cell_{number}_{part}": value for part, value in parts.items()}
        lines.append(line)
    columns = [Column("label", "Method", kind="text")]
    columns += [
        Column(f"cell_{n}", cell.name, measure.heading, best=measure.better, limits=measure.limits)
        for n, cell in enumerate(ranked)
    ]
    return Table("cells", pd.DataFrame(lines), columns, caption="Mean over each cell's own runs.")


def _figure(sums: pd.DataFrame, ranked: Sequence[Cell], measure: Measure) -> Figure:
    methods = list(sums.index)
    tasks = [cell.task(methods) for cell in ranked]
    values = np.concatenate([task.ravel() for task in tasks])
    thresholds = np.linspace(values.min(), values.max(), THRESHOLDS)
    shares = profile(tasks, thresholds)
    numbers = pd.concat(
        pd.DataFrame({"label": method, "threshold": thresholds, "share": own})
        for method, own in zip(methods, shares, strict=True)
    )
    caption = (
        "Mean ranks with 95 % intervals; performance profiles: the share of runs at or above a "
        "value, averaged over cells."
    )
    title = f"{measure.heading} ({measure.unit})"
    return Figure("profile", lambda: profile_figure(sums, numbers, title), numbers, caption)


def _pair_parts(pairs: pd.DataFrame, methods: Sequence[str], measure: Measure) -> Iterator[Part]:
    gains, texts = matrix(pairs, methods)
    caption = (
        "Gain of the row over the column, wins/ties/losses over the cells that both have, and "
        "from enough data sets on Wilcoxon's p over these, not corrected: no entry depends on a "
        "third method."
    )
    title = f"Gain in {measure.heading} ({measure.unit})"
    enough = bool((pairs["datasets"] >= FEWEST_PAIRS).any())
    if not enough:
        yield (
            f"No pair is judged: that takes {FEWEST_PAIRS} data sets that both methods have, and "
            f"the most is {pairs['datasets'].max()}. pairs.csv has the numbers of all {len(pairs)}."
        )
    yield Table("pairs", pairs, PAIR_COLUMNS, printed=enough)
    yield Figure("matrix", lambda: matrix_figure(gains, texts, title), gains, caption)


def _left_out(
    cells: Sequence[Cell], methods: Sequence[str], ranked: Sequence[Cell]
) -> Iterator[str]:
    """Name what is not ranked, with the reason; pairs have it."""
    every = dict.fromkeys(method for cell in cells for method in cell.runs)
    for method in (method for method in every if method not in methods):
        missing = ", ".join(cell.name for cell in ranked if method not in cell.runs)
        apart = ", ".join(
            cell.name for cell in ranked if method in cell.runs and method not in cell.together
        )
        reasons = [f"for want of {missing}"] * bool(missing)
        reasons += [f"as it shares no seed with the others in {apart}"] * bool(apart)
        if reasons:
            yield f"{method} is not ranked, {' and '.join(reasons)}; pairs have it."
        else:
            yield f"{method} is not ranked, as cells that it has are not; pairs have it."
    for cell in (cell for cell in cells if cell not in ranked):
        missing = ", ".join(method for method in methods if method not in cell.runs)
        reason = f"without {missing}" if missing else "methods share no seed there"
        yield f"{cell.name} is not ranked in: {reason}; pairs have it."
    for cell in ranked:
        shared = cell.task(methods).shape[1]
        more = [
            f"{m} ({len(cell.runs[m]) - shared})" for m in methods if len(cell.runs[m]) > shared
        ]
        if more:
            yield (
                f"{cell.name}: ranked over the {shared} run{'s' * (shared > 1)} of each method "
                f"whose seeds all have; further ones are in pairs and means: {', '.join(more)}."
            )
    for cell in cells:
        yield from cell.apart()


def _rule(params: Any, measure: Measure) -> str:
    return (
        "Rule, fixed in code. Rows have nothing set by hand; ranks and pairs are of runs that "
        "share their seeds. Mean rank: 1 for the best mean of a cell, ties averaged, over cells; "
        "it changes with the methods that are ranked. IQM: mean of the middle half of all runs, "
        f"cells counting alike. Both with percentile intervals of {RESAMPLES} resamples of the "
        "seeds within cells, if each has two or more. P(run above): of a run of the first over one "
        "of the second, equal ones half. Gain: "
        f"{'second minus first' if measure.better == 'lowest' else 'first minus second'} in "
        f"{measure.heading} ({measure.unit}). Posterior: Bayesian signed-rank test over data sets "
        "(cells of one are averaged first, as they are no independent evidence), practically equal "
        f"up to {params.rope:g}. A pair is told from {CERTAIN:g} on, and from {FEWEST_PAIRS} data "
        "sets on."
    )
