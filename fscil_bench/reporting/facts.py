"""What a table must say of its rows: on what terms their numbers were reached."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import pandas as pd

from fscil_bench.episodes.store import EpisodesRecord
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import FEATURES, Recipe
from fscil_bench.reporting.choice import Chosen
from fscil_bench.reporting.labels import (
    SHAPE,
    changed_params,
    differing_settings,
    method_title,
    named_values,
)
from fscil_bench.running.commands import changes
from fscil_bench.spec import RepresentationSpec, RunSpec
from fscil_bench.store.runs import RunRecord

BUSY = 1.25
"""Load by core above which times are said to be too long: a run by itself makes about 1."""
Records = Sequence[RunRecord] | Sequence[EpisodesRecord]
"""What is stored of runs, or of few-shot episodes, beside arrays."""


def note_lines(chosen: Chosen) -> list[str]:
    """Return the lines under a table of runs, with what was left out of it."""
    facts = [(label, row_facts(chosen, label)) for label in chosen.labels]
    return [
        *fact_lines(facts),
        *unequal_lines(list(chosen.specs.values())),
        *_chance_lines(chosen),
        *left_out_lines(chosen),
        *chosen.notes,
        *name_lines({spec.method for spec in chosen.specs.values()}, chosen.results.registry),
    ]


def _chance_lines(chosen: Chosen) -> list[str]:
    """Say which rows stand on a network that has hardly learnt anything."""
    barely = [
        label
        for label in chosen.labels
        if any(run.metrics[0].hardly_above_chance for run in chosen.runs(label))
    ]
    return [f"Session 0 is hardly above chance: {'; '.join(barely)}."] if barely else []


def busy_lines(loads: Sequence[float]) -> list[str]:
    """Say so if some of the runs, with these loads, were timed while the machine did other work."""
    busy = [load for load in loads if load > BUSY]
    if not busy:
        return []
    return [
        f"{len(busy)} of {len(loads)} runs were timed on a busy machine (up to {max(busy):.1f} "
        "processes a core wanted to run): their seconds are too long, and differences between "
        "them are not told from that. run --force times a run again."
    ]


def name_lines(methods: Collection[str], registry: Registry) -> list[str]:
    """Say what commands call methods that tables call otherwise."""
    titles = {name: method_title(name, registry) for name in sorted(methods)}
    words = [f"{title} is {name}" for name, title in titles.items() if title != name]
    return [f"In commands {', '.join(words)}."] if words else []


def fact_lines(rows: Sequence[tuple[str, Mapping[str, str]]]) -> list[str]:
    """Return what all rows share, then what each has of its own; `rows` are labels and facts."""
    facts = [each for _, each in rows]
    names = list(dict.fromkeys(name for each in facts for name in each))
    shared = [name for name in names if len({each.get(name) for each in facts}) == 1]
    lines = ["All rows: " + _sentence({name: facts[0][name] for name in shared})] if shared else []
    for label, each in rows:
        own = {name: text for name, text in each.items() if name not in shared}
        if own:
            lines.append(f"{label}: " + _sentence(own))
    return lines


def unequal_lines(specs: Sequence[RunSpec]) -> list[str]:
    """Say in what rows of these specifications are not on equal terms, if they are not."""
    unequal = differing_settings(specs)
    if not unequal:
        return []
    listed = "; ".join(f"{name} ({' / '.join(values)})" for name, values in unequal.items())
    return [f"Not all rows are on equal terms; they differ in {listed}."]


def training_facts(spec: RunSpec, registry: Registry) -> dict[str, str]:
    """Return how a specification's network is trained: phrases by name, in order of showing."""
    representation, epochs = spec.representation, spec.representation.recipe.epochs
    if representation.backbone == FEATURES:
        return {"backbone": f"features from a file: {representation.pretraining}"}
    own = "representation", representation.name, representation.params
    changed = named_values(changed_params(registry, *own, spec.protocol))
    return {
        "backbone": f"backbone {representation.backbone}{_input(representation)}",
        "pre-training": f"pre-training {representation.pretraining}",
        "representation": f"representation {', '.join([representation.name, *changed])}",
        "epochs": f"{epochs} epoch{'s' * (epochs != 1)}",
        "checkpoint": f"checkpoint: {checkpoint_rule(representation.recipe)}",
        "precision": f"precision {representation.precision}",
    }


def _input(spec: RepresentationSpec) -> str:
    """Say how images are resized for a backbone that has an input of its own."""
    own = spec.transform
    return f", images resized to {own.size}×{own.size}" if own else ""


def row_facts(chosen: Chosen, label: str) -> dict[str, str]:
    """Return what a table states of a row: phrases by name, in the order of showing."""
    spec, registry = chosen.spec(label), chosen.results.registry
    records = [run.record for run in chosen.runs(label)]
    trained = training_facts(spec, registry)
    if "precision" in trained:
        trained["precision"] = f"precision {precision_text(chosen.of(label))}"
    facts = {
        **trained,
        **image_facts(spec, records),
        "split": f"split {spec.split}",
        "shape": _shape_text(spec, registry),
        "axes": axes_text(chosen.axes(label), spec.split),
        "parameters": parameters_text([r.parameters for r in records]) + _values(spec, registry),
        "stored": f"{bytes_text([r.sessions[-1].state_bytes for r in records])} stored",
        "engine": f"engine {spec.engine}",
        "flags": flags_text(records),
        "notes": notes_text(records),
    }
    return {name: text for name, text in facts.items() if text}


def _shape_text(spec: RunSpec, registry: Registry) -> str:
    """Return in what a run's sessions are not those of the registered protocol of its name."""
    if spec.protocol.name not in registry.names("protocol"):
        return ""
    changed = changes(spec.protocol, registry)
    own = {name: changed[name] for name in SHAPE if name in changed}
    return f"not the protocol's own sessions: {', '.join(named_values(own))}" if own else ""


def precision_text(runs: pd.DataFrame) -> str:
    """Return the precision of a row's runs; of several, which representation seeds have each."""
    seeds = runs.groupby("precision")["representation_seed"].agg(numbers_text)
    if len(seeds) == 1:
        return str(seeds.index[0])
    return " and ".join(f"{name} (representation_seed {own})" for name, own in seeds.items())


def axes_text(axes: Collection[tuple[int, int]], split: str) -> str:
    """Say which axes of chance runs vary, and how often.

    Args:
        axes: the pairs (representation_seed, seed) of the runs, each once.
        split: of their shots.
    """
    count = len(axes)
    representation_seeds, seeds = (sorted({pair[axis] for pair in axes}) for axis in (0, 1))
    if count == 1:
        return f"n = 1 (seed {seeds[0]}, representation_seed {representation_seeds[0]})"
    fixed = split == "canonical"
    noise = "method noise; the shots are fixed" if fixed else "shots and method noise"
    if len(representation_seeds) == 1:
        return f"n = {count} over seed ({noise}), representation_seed {representation_seeds[0]}"
    if len(seeds) == 1:
        return f"n = {count} over representation_seed, seed {seeds[0]}"
    text = (
        f"n = {count} over seed ({len(seeds)} values; {noise}) "
        f"and representation_seed ({len(representation_seeds)} values)"
    )
    if min(len(seeds), len(representation_seeds)) < count:
        text += ", taken as independent although some runs share one, so that ± may be too narrow"
    return text


def image_facts(spec: RunSpec, records: Records) -> dict[str, str]:
    """Return how many images a class the records' data have."""
    counts, full = _range([r.train_images for r in records]), spec.protocol.train_images
    most = max(max(record.train_images) for record in records)
    told = full is not None and most <= full  # a protocol of one's own may have it wrong
    train = f"{counts} of {full} in the full data set" if told else counts
    return {
        "train_images": f"training images a class: {train}",
        "test_images": f"test images a class: {_range([r.test_images for r in records])}",
    }


def flags_text(records: Records) -> str:
    """Return the flags of all records, each once."""
    flags = sorted({flag for record in records for flag in record.told_flags})
    return f"flags: {', '.join(flags)}" if flags else ""


def left_out_lines(chosen: Chosen) -> list[str]:
    """Say which stored runs of the shown rows are not in the table, and why."""
    reasons = {
        "older": "made with an earlier version of the code",
        "repeated": "a newer one has the same seeds",
    }
    counts = chosen.frame.drop_duplicates("label").set_index("label")[list(reasons)]
    return [
        f"{label}: {_runs(int(count))} left out, {reasons[str(kind)]}."
        for label, row in counts.iterrows()
        for kind, count in row.items()
        if count
    ]


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


def numbers_text(numbers: Iterable[int]) -> str:
    """Return different numbers in order, with spaces between."""
    return " ".join(str(number) for number in sorted(set(numbers)))


def _range(pairs: Sequence[tuple[int, int]]) -> str:
    low, high = min(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
    return str(low) if low == high else f"{low} to {high}"


def parameters_text(phrases: Sequence[str]) -> str:
    """Say how parameters came about."""
    known = sorted({phrase for phrase in phrases if phrase})
    return f"parameters: {' / '.join(known)}" if known else ""


def _values(spec: RunSpec, registry: Registry) -> str:
    """Return the parameters of a method that is not registered, whose defaults are not known."""
    known = spec.method in registry.names("method")
    return "" if known or not spec.params else f" ({', '.join(named_values(spec.params))})"


def bytes_text(counts: Sequence[int]) -> str:
    """Return numbers of bytes as one phrase."""
    low, high = min(counts), max(counts)
    return human_bytes(low) if low == high else f"{human_bytes(low)} to {human_bytes(high)}"


def notes_text(records: Records) -> str:
    """Return the methods' remarks on their runs, each with its values over the records.

    A count that is 0 in all of them says that there was nothing to remark.
    """
    values: dict[str, list[float | str]] = {}
    for record in records:
        for name, value in record.notes.items():
            values.setdefault(name, []).append(value)
    texts = [
        f"{name} = {_noted(each)} ({len(each)} of {_runs(len(records))})"
        for name, each in values.items()
        if {str(value) for value in each} != {"0"}
    ]
    return f"the method notes {', '.join(texts)}" if texts else ""


def _noted(values: Sequence[float | str]) -> str:
    """Return what runs noted under one name: words one by one, numbers as a range."""
    numbers = [value for value in values if not isinstance(value, str)]
    if not numbers or len(numbers) < len(values):
        return " / ".join(dict.fromkeys(map(str, values)))
    low, high = (
        f"{value:.4g}" if isinstance(value, float) else str(value)
        for value in (min(numbers), max(numbers))
    )
    return low if low == high else f"{low} to {high}"


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _sentence(facts: Mapping[str, str]) -> str:
    return "; ".join(facts.values()) + "."
