"""All that is known of a table row: how its numbers were reached, at what cost, by which code."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from fscil_bench.errors import FscilError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import FEATURES
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.facts import (
    axes_text,
    bytes_text,
    checkpoint_rule,
    flags_text,
    image_facts,
    left_out_lines,
    notes_text,
    numbers_text,
    parameters_text,
    precision_text,
)
from fscil_bench.reporting.labels import named_values
from fscil_bench.spec import RunSpec
from fscil_bench.store.runs import RunRecord, StoredRun

Facts = Mapping[str, str]
Records = Sequence[RunRecord]


def row_details(chosen: Chosen, label: str) -> dict[str, Facts]:
    """Return headings in order, each with what it says by name; empty facts are left out."""
    spec, runs = chosen.spec(label), chosen.runs(label)
    records = [run.record for run in runs]
    found: dict[str, Facts] = {
        "Method": _method(spec, records),
        "Data": _data(spec, records, runs[0].metrics[-1].images),
        "Representation": _representation(
            spec, records, precision_text(chosen.of(label)), chosen.results.registry
        ),
        "Chance": _chance(spec, chosen.axes(label)),
        "Cost": _cost(records),
        "Made with": _environment(records),
        "Identity": _identity(spec, runs, chosen.results.registry),
        "Remarks": _remarks(left_out_lines(replace(chosen, frame=chosen.of(label))), records),
    }
    kept = {head: {n: text for n, text in each.items() if text} for head, each in found.items()}
    return {head: each for head, each in kept.items() if each}


def _method(spec: RunSpec, records: Records) -> Facts:
    origin = parameters_text([record.parameters for record in records])
    return {
        "name": spec.method,
        "parameters": ", ".join(named_values(spec.params)) or "none",
        "came about as": origin.removeprefix("parameters: "),
    }


def _data(spec: RunSpec, records: Records, scored: int) -> Facts:
    protocol, images = spec.protocol, image_facts(spec, records)
    size = f"{protocol.images.size} × {protocol.images.size}"
    shown = {} if spec.representation.backbone == FEATURES else {"image size": size}
    return {
        "protocol": f"{protocol.title} ({protocol.name}), data set {protocol.dataset}",
        "classes": f"{protocol.base_classes} base + {protocol.sessions} sessions × "
        f"{protocol.way_text} new, {protocol.shot} shots each; class order {protocol.class_order}",
        **shown,
        "images": f"{images['train_images']}; {images['test_images']}",
        "test images scored": f"{scored} in the last session",
    }


def _representation(spec: RunSpec, records: Records, precision: str, registry: Registry) -> Facts:
    brought = spec.representation
    best = [record.representation_log.get("best_epoch") for record in records]
    chosen = _several(f"epoch {epoch}" for epoch in best if epoch is not None)
    if brought.backbone == FEATURES:
        return {"features": f"from a file: {brought.pretraining}"}
    rule, views = checkpoint_rule(brought.recipe), spec.views
    recipe = brought.recipe.model_dump(mode="json", exclude={"epochs", "checkpoint"})
    return {
        "backbone": _backbone(brought.backbone, registry),
        "pre-training": brought.pretraining,
        "objective": ", ".join([brought.name, *named_values(brought.params)]),
        "epochs": str(brought.recipe.epochs),
        "recipe": ", ".join(named_values(recipe)),
        "selection rule": f"{rule} ({chosen})" if chosen else rule,
        "precision": precision,
        "features of": {"plain": "the image", "flip": "image and mirror image, averaged"}[views],
    }


def _chance(spec: RunSpec, axes: Collection[tuple[int, int]]) -> Facts:
    return {
        "split": spec.split,
        "seeds": numbers_text(seed for _, seed in axes),
        "representation seeds": numbers_text(seed for seed, _ in axes),
        "averaged": axes_text(axes, spec.split),
    }


def _cost(records: Records) -> Facts:
    trained = [
        r.representation_log["seconds"] for r in records if "seconds" in r.representation_log
    ]
    peaks = [record.peak_memory for record in records if record.peak_memory]
    sessions = [record.sessions for record in records]
    return {
        "stored after the base session": bytes_text([own[0].state_bytes for own in sessions]),
        "stored after the last session": bytes_text([own[-1].state_bytes for own in sessions]),
        "peak memory of the process": bytes_text(peaks) if peaks else "",
        "base training": _seconds(trained),
        "learning from base data alone": _seconds([r.pretrain_seconds for r in records]),
        "base session": _seconds([own[0].learn_seconds for own in sessions]),
        "all later sessions": _seconds([sum(s.learn_seconds for s in own[1:]) for own in sessions]),
        "scoring, all sessions": _seconds([sum(s.score_seconds for s in own) for own in sessions]),
    }


def _environment(records: Records) -> Facts:
    names = dict.fromkeys(name for record in records for name in record.environment)
    return {
        name: _several(_environment_text(record.environment.get(name)) for record in records)
        for name in names
    }


def _identity(spec: RunSpec, runs: Sequence[StoredRun], registry: Registry) -> Facts:
    brought = spec.representation
    trained = dict.fromkeys(run.spec.representation.key for run in runs)
    return {
        "row": spec.row,
        "runs": " ".join(run.key for run in runs),
        "representations": " ".join(trained),
        "networks": " ".join(dict.fromkeys(r.record.network for r in runs if r.record.network)),
        "data fingerprint": brought.data_fingerprint,
        "table of shots": spec.shots or "",
        "method's code": _code("method", spec.method, spec.code, registry),
        "representation's code": _code("representation", brought.name, brought.code, registry),
        "engine": spec.engine,
        "engine of the representation": brought.engine,
        "made": _several(sorted(run.record.created[:10] for run in runs)),
    }


def _remarks(left_out: Sequence[str], records: Records) -> Facts:
    return {
        "flags": flags_text(records).removeprefix("flags: "),
        "notes": notes_text(records).removeprefix("the method notes "),
        "left out": " ".join(left_out),
    }


def _backbone(name: str, registry: Registry) -> str:
    try:
        backbone, _ = registry.backbone(name)
        return f"{backbone.title or name}, {backbone.parameters():,} parameters"
    except FscilError:  # of elsewhere, or of a library that is not installed
        return f"{name} (not known here)"


def _code(kind: str, name: str, digest: str, registry: Registry) -> str:
    """Return a digest of code, and whether what is installed is that code."""
    if not digest:
        return "none, nothing is trained"
    if name not in registry.names(kind):
        return f"{digest} (not installed here)"
    same = registry.get(kind, name).digest() == digest
    return digest if same else f"{digest} (another version is installed now)"


def _seconds(values: Sequence[float]) -> str:
    """Return the range of seconds; nothing for none, or where nothing was done."""
    if not any(values):
        return ""
    low, high = (
        f"{each:.3g}" if each < 100 else f"{each:.0f}" for each in (min(values), max(values))
    )
    return f"{low} s" if low == high else f"{low} to {high} s"


def _environment_text(value: object) -> str:
    if isinstance(value, list):  # machines from before a stop
        return "; ".join(
            ", ".join(filter(None, map(_environment_text, each.values()))) for each in value
        )
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return "" if value is None else str(value)


def _several(texts: Iterable[str]) -> str:
    return " / ".join(dict.fromkeys(text for text in texts if text))
