"""The KL of each recurrent step as Markdown, LaTeX and CSV, and what the embedding is of."""

from __future__ import annotations

from collections.abc import Sequence

from fscil_bench.metrics import Interval
from fscil_bench.plugins.registry import Registry

from ._calibration import GROUPS, Calibration
from ._embedding import Embedding
from ._facts import note_lines
from ._latex import escape_latex, latex_table
from ._rows import group_rows
from ._tables import Column, TableRow, csv_table, escape_markdown, markdown_table

KL = (
    "KL(generated‖real) in nats between one-dimensional Gaussians, averaged over the axes and as "
    "many random directions. Sets of half the test images of a class are compared, and the floor "
    "is one half of the real ones against the other, so that both are too large by about as much. "
    "n counts classes; ± is the half-width of the 95 % Student-t interval over them."
)
DISTANCES = (
    "t-SNE keeps neighbours together; distances between far points, sizes and densities of clouds "
    "mean nothing in it, and the means are points embedded with the samples."
)


def class_names(found: Calibration) -> dict[int, str]:
    """Return the names of the classes that are shown, by id, with what they are."""
    names = found.run.record.class_names
    ids = [each.class_id for each in found.shown]
    return {each: f"{names[each]} ({'new' if found.is_new(each) else 'base'})" for each in ids}


def markdown(found: Calibration, points: Embedding, registry: Registry) -> str:
    """Return the report."""
    protocol = found.run.spec.protocol
    columns, rows = _table(found)
    notes = "\n".join(f"- {escape_markdown(note)}" for note in _notes(found, points, registry))
    parts = [
        f"# Calibrated features on {escape_markdown(protocol.title)} "
        f"({escape_markdown(protocol.name)})",
        escape_markdown(_what(found)),
        markdown_table(columns, rows).rstrip(),
        escape_markdown(KL),
        "`tsne.png`: " + escape_markdown(_legend(points)),
        notes,
    ]
    return "\n\n".join(parts) + "\n"


def latex(found: Calibration, points: Embedding, registry: Registry) -> str:
    """Return the table with its notes."""
    columns, rows = _table(found)
    notes = [_what(found), KL, _legend(points), *_notes(found, points, registry)]
    return latex_table(columns, rows, [escape_latex(note) for note in notes])


def csv(found: Calibration) -> str:
    """Return the table in full."""
    return csv_table(*_table(found))


def _table(found: Calibration) -> tuple[list[Column], list[TableRow]]:
    """Return the KL after each step: of each class shown, and over base and new classes."""
    keys = [f"step_{step}" for step in range(found.steps + 1)]
    # The floor would always be the best.
    columns = [Column(key, f"step {step}", "KL (nats)", "none") for step, key in enumerate(keys)]
    columns.append(Column("floor", "floor", "", "none"))
    named: list[tuple[str, Sequence[int]]] = [
        (name, [class_id]) for class_id, name in class_names(found).items()
    ]
    for shown, word in ((True, "shown"), (False, "all")):
        for group in GROUPS:
            named.append((f"{word} {group} classes", found.group(group, shown)))
    keys.append("floor")
    rows = [TableRow(label, len(ids), _cells(keys, found.over(ids))) for label, ids in named if ids]
    return columns, rows


def _cells(keys: Sequence[str], intervals: Sequence[Interval]) -> dict[str, Interval]:
    return dict(zip(keys, intervals, strict=True))


def _what(found: Calibration) -> str:
    spec = found.run.spec
    space = f"features to the power of {found.power:g}" if found.power != 1 else "features as are"
    return (
        f"Generated features of {spec.method} after session {found.session} (seed {spec.seed}, "
        f"split {spec.split}, recurrent_steps {found.steps}) against the features of the test "
        f"images, all in the method's space ({space})."
    )


def _legend(points: Embedding) -> str:
    lowered = f" (lowered from {points.asked:g} to fit them)" if points.lowered else ""
    return (
        "one panel a recurrent step. Filled: real features, the same in every panel; outlined: "
        "generated ones of the step, other samples in each; large: the means of all. All panels "
        f"are of one t-SNE of {points.samples} points at perplexity {points.perplexity:g}"
        f"{lowered}, so that they compare. {DISTANCES}"
    )


def _notes(found: Calibration, points: Embedding, registry: Registry) -> list[str]:
    lines = list(found.notes)
    if points.constant:
        lines.append(
            f"{points.constant} feature dimensions are the same for all points and were left out "
            "of the embedding."
        )
    return [*lines, *note_lines(group_rows([found.run], registry), registry)]
