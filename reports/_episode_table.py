"""The columns, cells and notes of a table of few-shot episodes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fscil_bench.plugins.registry import Registry

from ._episodes import EpisodeRow, reference_row
from ._facts import (
    bytes_text,
    fact_lines,
    flags_text,
    image_facts,
    notes_text,
    parameters_text,
    training_facts,
    unequal_lines,
)
from ._tables import Column, TableRow


def episode_table(rows: Sequence[EpisodeRow], against: str) -> tuple[list[Column], list[TableRow]]:
    """Return columns and cells: accuracy in each setting, and what it is above `against`.

    Raises:
        UsageError: `against` names no row, or several.
    """
    settings = sorted({setting for row in rows for setting in row.stored})
    columns = {
        s: Column(f"way{s.way}_shot{s.shot}", f"{s.way}-way {s.shot}-shot") for s in settings
    }
    cells = [{columns[s].key: row.interval(s) for s in settings} for row in rows]
    differences = {
        s: Column(f"{column.key}_difference", f"{column.heading} − {against}")
        for s, column in columns.items()
        if against
    }
    for row, own in zip(rows, cells, strict=True):
        other = reference_row(row, rows, against) if against else None
        if other is not None:
            own |= {column.key: row.minus(other, s) for s, column in differences.items()}
    table = [
        TableRow(row.label, max(row.interval(s).count for s in settings), own, _identity(row))
        for row, own in zip(rows, cells, strict=True)
    ]
    return [*columns.values(), *differences.values()], table


def _identity(row: EpisodeRow) -> dict[str, str | int]:
    spec, members = row.spec, row.members
    seeds = sorted({each.spec.run.seed for each in members})
    return {
        "method": spec.method,
        "params": json.dumps(spec.params, sort_keys=True),
        "representation": spec.representation.name,
        "representation_params": json.dumps(spec.representation.params, sort_keys=True),
        "representation_seed": spec.representation.seed,
        "protocol": spec.protocol.name,
        "seeds": " ".join(map(str, seeds)),
        "queries": row.queries,
        "row": spec.row,
        "version": members[0].spec.version,
    }


def episode_notes(rows: Sequence[EpisodeRow], registry: Registry) -> list[str]:
    """Return the lines under a table of episodes, with what was left out of it."""
    lines = fact_lines([(row.label, _facts(row, registry)) for row in rows])
    lines += unequal_lines([row.spec for row in rows])
    for row in rows:
        if row.older:
            lines.append(
                f"{row.label}: {row.older} stored sets of episodes left out, made with an earlier "
                "version of the code."
            )
    return lines


def _facts(row: EpisodeRow, registry: Registry) -> dict[str, str]:
    spec, records = row.spec, [each.record for each in row.members]
    seeds = sorted({each.spec.run.seed for each in row.members})
    facts = {
        **training_facts(spec, registry),
        **image_facts(spec, records),
        "new": f"{spec.protocol.classes_used - spec.protocol.base_classes} new classes",
        "queries": f"{row.queries} queries a class",
        "draws": f"episodes drawn by seed {', '.join(map(str, seeds))}",
        "representation_seed": f"representation_seed {spec.representation.seed}",
        "counts": _counts(row),
        "parameters": parameters_text([record.parameters for record in records]),
        "stored": f"{bytes_text([record.state_bytes for record in records])} stored",
        "engine": f"engine {spec.engine}, of the episodes {row.members[0].spec.engine}",
        "flags": flags_text(records),
        "notes": notes_text(records),
    }
    return {name: text for name, text in facts.items() if text}


def _counts(row: EpisodeRow) -> str:
    """Say how many episodes each setting has, where the table's n does not."""
    counts = {setting: row.interval(setting).count for setting in row.stored}
    if len(set(counts.values())) == 1:
        return ""
    return ", ".join(f"{s.way}-way {s.shot}-shot n = {count}" for s, count in counts.items())
