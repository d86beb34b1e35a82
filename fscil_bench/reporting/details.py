"""The facts of a card: on what terms a row's numbers were reached, and at what cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Recipe
from fscil_bench.store.runs import RunRecord, StoredRun
from fscil_bench.training.backbones import backbone_title, build_backbone, count_parameters

from ._facts import (
    bytes_text,
    checkpoint_rule,
    flags_text,
    image_facts,
    left_out_lines,
    notes_text,
    parameters_text,
)
from ._labels import named_values
from ._rows import Row, axes_text

Facts = Mapping[str, str]


def card_facts(row: Row, registry: Registry) -> dict[str, Facts]:
    """Return headings in order, each with what it says by name; empty facts are left out."""
    records = [run.record for run in row.runs]
    found: dict[str, Facts] = {
        "Method": _method(row, records),
        "Data": _data(row, records),
        "Representation": _representation(row, records),
        "Chance": _chance(row),
        "Cost": _cost(row),
        "Made with": _environment(records),
        "Identity": _identity(row, registry),
        "Remarks": _remarks(row, records),
    }
    kept = {head: {n: text for n, text in each.items() if text} for head, each in found.items()}
    return {head: each for head, each in kept.items() if each}


def _method(row: Row, records: Sequence[RunRecord]) -> Facts:
    spec = row.spec
    origin = parameters_text([record.parameters for record in records])
    return {
        "name": spec.method,
        "parameters": ", ".join(named_values(spec.params)) or "none",
        "came about as": origin.removeprefix("parameters: "),
    }


def _data(row: Row, records: Sequence[RunRecord]) -> Facts:
    spec, protocol = row.spec, row.spec.protocol
    images = image_facts(spec, records)
    return {
        "protocol": f"{protocol.title} ({protocol.name}), data set {protocol.dataset}",
        "classes": f"{protocol.base_classes} base + {protocol.sessions} sessions × "
        f"{protocol.way} new, {protocol.shot} shots each; class order {protocol.class_order}",
        "image size": f"{protocol.images.size} × {protocol.images.size}",
        "images": f"{images['train_images']}; {images['test_images']}",
        "test images scored": f"{row.runs[0].metrics[-1].images} in the last session",
    }


def _representation(row: Row, records: Sequence[RunRecord]) -> Facts:
    spec = row.spec.representation
    count = parameter_count(spec.backbone)
    best = [record.representation_log.get("best_epoch") for record in records]
    chosen = _several(f"epoch {epoch}" for epoch in best if epoch is not None)
    rule = checkpoint_rule(spec.recipe)
    return {
        "backbone": f"{backbone_title(spec.backbone)}, {count:,} parameters",
        "pre-training": spec.pretraining,
        "objective": ", ".join([spec.name, *named_values(spec.params)]),
        "epochs": str(spec.recipe.epochs),
        "recipe": _recipe(spec.recipe),
        "selection rule": f"{rule} ({chosen})" if chosen else rule,
        "precision": spec.precision,
        "features of": {"plain": "the image", "flip": "image and mirror image, averaged"}.get(
            row.spec.views, row.spec.views
        ),
    }


def _chance(row: Row) -> Facts:
    return {
        "split": row.spec.split,
        "seeds": _words(seed for _, seed in row.axes),
        "representation seeds": _words(seed for seed, _ in row.axes),
        "averaged": axes_text(row),
    }


def _cost(row: Row) -> Facts:
    records = [run.record for run in row.runs]
    trained = [
        r.representation_log["seconds"] for r in records if "seconds" in r.representation_log
    ]
    peaks = [record.peak_memory for record in records if record.peak_memory]
    return {
        "stored after the base session": bytes_text([r.sessions[0].state_bytes for r in records]),
        "stored after the last session": bytes_text([r.sessions[-1].state_bytes for r in records]),
        "peak memory of the process": bytes_text(peaks) if peaks else "",
        "base training": _seconds(trained),
        "learning from base data alone": _seconds([r.pretrain_seconds for r in records]),
        "base session": _seconds([r.sessions[0].learn_seconds for r in records]),
        "all later sessions": _seconds(_summed(row.runs, lambda s: s.learn_seconds, first=1)),
        "scoring, all sessions": _seconds(_summed(row.runs, lambda s: s.score_seconds, first=0)),
    }


def _environment(records: Sequence[RunRecord]) -> Facts:
    names = dict.fromkeys(name for record in records for name in record.environment)
    return {
        name: _several(_environment_text(record.environment.get(name)) for record in records)
        for name in names
    }


def _identity(row: Row, registry: Registry) -> Facts:
    spec, brought = row.spec, row.spec.representation
    return {
        "row": spec.row,
        "runs": " ".join(run.key for run in row.runs),
        "representations": _words_of(run.spec.representation.key for run in row.runs),
        "data fingerprint": brought.data_fingerprint,
        "table of shots": spec.shots or "",
        "method's code": _code("method", spec.method, spec.code, registry),
        "representation's code": _code("representation", brought.name, brought.code, registry),
        "engine": spec.engine,
        "engine of the representation": brought.engine,
        "made": _several(sorted(run.record.created[:10] for run in row.runs)),
    }


def _remarks(row: Row, records: Sequence[RunRecord]) -> Facts:
    return {
        "flags": flags_text(records).removeprefix("flags: "),
        "notes": notes_text(records).removeprefix("the method notes "),
        "left out": " ".join(left_out_lines([row])),
    }


@cache
def parameter_count(backbone: str) -> int:
    """Return the number of trainable parameters of a backbone."""
    return count_parameters(build_backbone(backbone, seed=0))


def _recipe(recipe: Recipe) -> str:
    values = recipe.model_dump(mode="json", exclude={"epochs", "checkpoint"})
    return ", ".join(named_values(values))


def _code(kind: str, name: str, digest: str, registry: Registry) -> str:
    """Return a digest of code, and whether what is installed is that code."""
    if name not in registry.names(kind):
        return f"{digest} (not installed here)"
    same = registry.get(kind, name).digest() == digest
    return digest if same else f"{digest} (another version is installed now)"


def _summed(runs: Sequence[StoredRun], of: Callable[..., float], first: int) -> list[float]:
    return [sum(of(session) for session in run.record.sessions[first:]) for run in runs]


def _seconds(values: Sequence[float]) -> str:
    """Return the range of seconds; nothing for none, or where nothing was done."""
    if not any(values):
        return ""
    low, high = (
        f"{each:.3g}" if each < 100 else f"{each:.0f}" for each in (min(values), max(values))
    )
    return f"{low} s" if low == high else f"{low} to {high} s"


def _environment_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return "" if value is None else str(value)


def _several(texts: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(text for text in texts if text))


def _words(numbers: Iterable[int]) -> str:
    return " ".join(str(number) for number in sorted(set(numbers)))


def _words_of(texts: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(texts))
