"""What a table must say of its rows: on what terms their numbers were reached."""

from __future__ import annotations

from collections.abc import Sequence

from fscil_bench.protocol import Recipe
from fscil_bench.registry import Registry

from ._labels import changed_params, differing_settings, named_values
from ._rows import Row, axes_text


def note_lines(rows: Sequence[Row], registry: Registry) -> list[str]:
    """Return the lines under a table: what all rows share, then what each has of its own."""
    facts = [row_facts(row, registry) for row in rows]
    names = list(dict.fromkeys(name for each in facts for name in each))
    shared = [name for name in names if len({each.get(name) for each in facts}) == 1]
    lines = ["All rows: " + _sentence({name: facts[0][name] for name in shared})] if shared else []
    for row, each in zip(rows, facts, strict=True):
        own = {name: text for name, text in each.items() if name not in shared}
        if own:
            lines.append(f"{row.label}: " + _sentence(own))
    unequal = differing_settings([row.spec for row in rows])
    if unequal:
        listed = "; ".join(f"{name} ({' / '.join(values)})" for name, values in unequal.items())
        lines.append(f"Not all rows are on equal terms; they differ in {listed}.")
    return lines + left_out_lines(rows)


def row_facts(row: Row, registry: Registry) -> dict[str, str]:
    """Return what a table states of a row: phrases by name, in the order of showing."""
    spec, records = row.spec, [run.record for run in row.runs]
    protocol, representation = spec.protocol, spec.representation
    changed = named_values(
        changed_params(registry, "representation", representation.name, representation.params)
    )
    flags = sorted({flag for record in records for flag in record.flags})
    facts = {
        "backbone": f"backbone {representation.backbone}",
        "pre-training": f"pre-training {representation.pretraining}",
        "representation": f"representation {', '.join([representation.name, *changed])}",
        "epochs": f"{protocol.recipe.epochs} epochs",
        "checkpoint": f"checkpoint: {checkpoint_rule(protocol.recipe)}",
        "precision": f"precision {representation.precision}",
        "train_images": f"training images a class: {_train_images(row)}",
        "test_images": f"test images a class: {_range([r.test_images for r in records])}",
        "split": f"split {spec.split}",
        "axes": axes_text(row),
        "parameters": _parameters([r.parameters for r in records]),
        "stored": f"{_stored_bytes([r.sessions[-1].state_bytes for r in records])} stored",
        "engine": f"engine {spec.engine}",
        "flags": f"flags: {', '.join(flags)}" if flags else "",
        "notes": _method_notes(row),
    }
    return {name: text for name, text in facts.items() if text}


def left_out_lines(rows: Sequence[Row]) -> list[str]:
    """Say which stored runs of the shown rows are not in the table, and why."""
    lines = []
    for row in rows:
        if row.older:
            reason = "made with an earlier version of the code"
            lines.append(f"{row.label}: {_runs(row.older)} left out, {reason}.")
        if row.repeated:
            reason = "a newer one has the same seeds"
            lines.append(f"{row.label}: {_runs(row.repeated)} left out, {reason}.")
    return lines


def checkpoint_rule(recipe: Recipe) -> str:
    """Say how the epoch was chosen."""
    if recipe.checkpoint == "best":
        return f"best epoch on {recipe.holdout:.0%} of base training images, held out"
    return "last epoch"


def human_bytes(count: int) -> str:
    """Return bytes in a unit that suits them, with the exact number beside it."""
    if count < 1024:
        return f"{count} bytes"
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.2f} {unit} ({count:,} bytes)"


def _train_images(row: Row) -> str:
    counts = _range([run.record.train_images for run in row.runs])
    full = row.spec.protocol.train_images
    return counts if full is None else f"{counts} of {full} in the full data set"


def _range(pairs: Sequence[tuple[int, int]]) -> str:
    low, high = min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    return str(low) if low == high else f"{low} to {high}"


def _parameters(phrases: Sequence[str]) -> str:
    known = sorted({phrase for phrase in phrases if phrase})
    return f"parameters: {' / '.join(known)}" if known else ""


def _stored_bytes(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return human_bytes(low) if low == high else f"{human_bytes(low)} to {human_bytes(high)}"


def _method_notes(row: Row) -> str:
    """Return the methods' remarks on their runs, each with all its values over the row."""
    values: dict[str, list[str]] = {}
    for run in row.runs:
        for name, value in run.record.notes.items():
            values.setdefault(name, []).append(str(value))
    texts = [
        f"{name} = {' / '.join(dict.fromkeys(each))} ({len(each)} of {_runs(len(row.runs))})"
        for name, each in values.items()
    ]
    return f"the method notes {', '.join(texts)}" if texts else ""


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _sentence(facts: dict[str, str]) -> str:
    return "; ".join(facts.values()) + "."
