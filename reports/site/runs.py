"""What the pages of rows and runs show beside the leaderboard's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fscil_bench.plugins.registry import Registry
from fscil_bench.reporting.facts import image_facts
from fscil_bench.running.commands import command_for
from fscil_bench.store.runs import StoredRun


def run_page(run: StoredRun, registry: Registry) -> dict[str, Any]:
    """Return what the page of a run shows; facts are pairs of a name and a text.

    `classes` are those of each session under a heading, the base session first.
    """
    record, protocol = run.record, run.spec.protocol
    return {
        "run": run,
        "command": command_for(run.spec, registry),
        "sessions": list(zip(record.sessions, run.metrics, strict=True)),
        "images": [text.split(": ", 1) for text in image_facts(run.spec, [record]).values()],
        "notes": list(_flat(record.notes)),
        "environment": list(_flat(record.environment)),
        "specification": list(_flat(record.spec.model_dump(mode="json"))),
        "log": list(_flat(record.representation_log)),
        "classes": [
            (
                f"Session {t}" if t else "Base session",
                [record.class_names[c] for c in protocol.session_classes(t)],
            )
            for t in range(protocol.sessions + 1)
        ],
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted name, text) for each value of nested mappings; long lists are shortened."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        texts = [_text(each) for each in value]
        if len(texts) > 8:
            return f"{', '.join(texts[:3])}, … {texts[-1]} ({len(texts)} values)"
        return ", ".join(texts) or "none"
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None or value in ("", {}):
        return "none"
    return str(value)
