"""Methods compared pair by pair: paired differences, tests, and a plain sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.report import Column, Document, Figure, Notes, Report, Section, Table
from fscil_bench.reporting.choice import Chosen, meant_rows, usual_rows
from fscil_bench.reporting.facts import note_lines
from fscil_bench.reporting.lacks import lacking_runs
from fscil_bench.reporting.measures import PERCENT, formulas
from fscil_bench.reporting.selectors import fitting
from fscil_bench.reporting.statistics import FEWEST_PAIRS, LEVEL, RESAMPLES, aggregate
from fscil_bench.reporting.tables import ROW_COLUMNS

from .figure import difference_figure, drawn_pairs, far_rows
from .orders import Ranked, agreement_lines, order_frame, orders_of, rankings
from .pairs import FIGURES, compared_pairs, sentences

LONG = 52
"""Characters from which on a row's label is too long to stand in sentences."""
PAIR_COLUMNS = [
    Column("first", "First", kind="text", width=0.2),
    Column("second", "Second", kind="text", width=0.2),
    Column("n", "n", kind="number", decimals=0),
    Column("mean", "Difference", kind="number"),
    Column("low", "from", "95 % interval", "number"),
    Column("high", "to", "95 % interval", "number"),
    Column("bootstrap_low", "from", "Bootstrap", "number"),
    Column("bootstrap_high", "to", "Bootstrap", "number"),
    Column("p", "p", kind="number", decimals=4),
    Column("p_holm", "p, Holm", kind="number", decimals=4),
    Column("outcome", "Outcome", kind="text", width=0.15, bold=True),
]
RULE = (
    "Rule, fixed in code. Two rows are paired by seed and representation_seed, and only if they "
    "share split, classes, shots, test images and engine. Difference: the mean over pairs of first "
    "minus second in percentage points, with its Student-t interval. Bootstrap: BCa interval of "
    f"the same mean, {RESAMPLES} resamples of the pairs. p: Wilcoxon's signed-rank test, "
    "two-sided, pairs without difference dropped. Holm: corrected over all lines of a table that "
    f"can be tested. A difference holds if Holm's p is below {LEVEL:g}; fewer than {FEWEST_PAIRS} "
    "pairs can never reach that, and are not tested. "
    "What seeds vary is chance in shots and method noise; other classes, networks or data are no "
    "part of these intervals unless the runs vary them."
)
ONE_ORDER = (
    "Runs of one class order alone are stored for these rows, so that nothing can be said of "
    "another; the same runs with --class-order seed:1 are of one."
)


class Compare(Report):
    """Every two rows of the chosen methods, paired by seed, tested and corrected.

    `fscil-bench report compare --protocol P --method A,B`; rows are told apart as in main-table,
    and `--set "rows=A (x=1); B"` chooses among them.
    """

    name = "compare"
    title = "Paired differences between methods, with tests; their order across class orders"

    @dataclass(frozen=True)
    class Params:
        """`rows`: which rows to compare, as their labels in main-table are written.

        Without them, each method's rows with nothing set by hand and class means in Tukey space
        (all rows of a method that has none such); with `all` every row. More pairs ask for larger
        differences, as tests are corrected over all of them: of ten seeds none can hold from 26
        pairs on, which eight rows have. `against` names one row to compare with each of the others
        alone: seven pairs then, which take seven seeds.
        """

        rows: str = ""
        against: str = ""
        all: bool = False

    def build(self, frame: pd.DataFrame, params: Any) -> Document:
        """Return sentences, a table of pairs for each figure, their drawing, and class orders.

        Raises:
            FscilError: nothing stored fits, or there are not two rows to compare.
        """
        del frame
        full = meant_rows(self.results, self.name, params.rows, params.all, _of_all_orders)
        names = _short_names(full)
        chosen = replace(full, frame=full.frame.assign(label=full.frame["label"].map(names)))
        named = _references(params.against, full)
        pairs = compared_pairs(chosen, [names[label] for label in named])
        orders = rankings(chosen)
        if pairs.empty:
            listed = "\n  ".join([*full.labels, *full.notes])
            shown = set(full.frame["method"])
            if lacking := [m for m in self.results.selection.methods if m not in shown]:
                lacks = [lack for lack in lacking_runs(full) if lack.command]
                raise FscilError(
                    "\n".join(
                        [
                            f"no run of {', '.join(lacking)} is stored, so that nothing can be "
                            "paired; make some:",
                            *(f"  {lack.command}" for lack in lacks),
                        ]
                    )
                )
            raise FscilError(
                "no two of the chosen rows share a seed on equal terms (classes, shots, test "
                f"images, engine), so that nothing can be paired; the rows are\n  {listed}"
            )
        protocol = chosen.spec(chosen.labels[0]).protocol
        rows = aggregate(chosen.frame, "label", FIGURES.values())
        drawn, far = drawn_pairs(pairs), far_rows(rows)
        full_names = {short: label for label, short in names.items()}
        in_full = pairs.assign(
            **{side: pairs[side].map(full_names) for side in ("first", "second")}
        )
        alone = [
            label for label in chosen.labels if label not in {*pairs["first"], *pairs["second"]}
        ]
        terms = note_lines(full)
        if alone:
            listed = ", ".join(alone)
            terms.insert(
                0, f"Compared with nothing, as no other row has their terms or seeds: {listed}."
            )
        return Document(
            title=f"Compared on {protocol.title} ({protocol.name})",
            parts=[
                Notes(sentences(pairs[pairs["figure"] == "last session"], _selectors(full, names))),
                _row_table(rows, full_names),
                *(
                    Section(str(figure).capitalize(), [Table(_stem(figure), own, PAIR_COLUMNS)])
                    for figure, own in pairs.groupby("figure", sort=False)
                ),
                Table("compare", in_full, printed=False),
                RULE,
                Figure(
                    "differences",
                    lambda: difference_figure(drawn, far),
                    drawn,
                    _caption(drawn, pairs, far),
                ),
                Section("Across class orders", [*_order_parts(orders)] or [ONE_ORDER]),
                Notes(terms, "Terms"),
            ],
            lacks=lacking_runs(full),
            warnings=full.problems,
        )


def _references(against: str, full: Chosen) -> list[str]:
    """Return the labels that `against` names among the rows that are compared; without it none."""
    if not against.strip():
        return []
    try:
        return fitting(against, full.specs)
    except UsageError as error:
        listed = "\n  ".join([*full.labels, *full.notes])
        raise UsageError(f"against = {against!r}: {error}\ncompared are\n  {listed}") from error


def _stem(figure: object) -> str:
    return str(figure).replace(" ", "-")


def _of_all_orders(found: Chosen) -> Chosen:
    return usual_rows(found, "class_order")


def _short_names(chosen: Chosen) -> dict[str, str]:
    """Return for each label a name that a sentence can carry: itself, unless one is too long."""
    if all(len(label) <= LONG for label in chosen.labels):
        return {label: label for label in chosen.labels}
    methods = pd.Series([chosen.spec(label).method for label in chosen.labels])
    numbers = (methods.groupby(methods).cumcount() + 1).astype(str)
    return dict(zip(chosen.labels, methods + " #" + numbers, strict=True))


def _selectors(full: Chosen, names: Mapping[str, str]) -> dict[str, str]:
    """Return how a user asks for each row, by its short name: its method, or its whole label."""
    methods = Counter(spec.method for spec in full.specs.values())
    return {
        names[label]: spec.method if methods[spec.method] == 1 else label
        for label, spec in full.specs.items()
    }


def _row_table(rows: pd.DataFrame, full: Mapping[str, str]) -> Table:
    names = [name if name == full[name] else f"{name}: {full[name]}" for name in rows.index]
    columns = [
        Column(measure, figure.capitalize(), best="highest", limits=PERCENT)
        for figure, measure in FIGURES.items()
    ]
    found = rows.set_axis(pd.Index(names, name="label"))
    return Table("rows", found, [*ROW_COLUMNS, *columns], formulas=formulas(*FIGURES.values()))


def _order_parts(orders: list[Ranked]) -> Iterator[Table | Notes | str]:
    for number, each in enumerate(orders, start=1):
        columns = [
            Column(order, order, "Class order", best="highest", limits=PERCENT)
            for order in orders_of(each)
        ]
        name = "class-orders" if len(orders) == 1 else f"class-orders-{number}"
        yield Table(name, order_frame(each), [*ROW_COLUMNS, *columns])
        yield Notes(agreement_lines(each))
    if orders:
        yield "Last-session accuracy in %, ± the half-width of the 95 % interval over seeds."


def _caption(drawn: pd.DataFrame, pairs: pd.DataFrame, far: Mapping[str, set[str]]) -> str:
    shown, stored = (each["figure"].eq("last session").sum() for each in (drawn, pairs))
    which = "all pairs"
    if shown < stored:
        best = drawn["first"].iloc[0]
        which = f"{shown} of {stored} pairs, those of {best} with rows below"
    text = (
        f"{which}, with Student-t intervals; a filled circle is a "
        "difference that holds after correction, an open diamond one that does not."
    )
    names = sorted(set().union(*far.values()) & {*drawn["first"], *drawn["second"]})
    if names:
        text += (
            f" Differences to rows far from most others ({', '.join(names)}) would leave these no "
            "room: they stand at the edge, with their value."
        )
    return text
