"""Which runs a table lacks, with the commands that make them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fscil_bench.report import Lack
from fscil_bench.reporting.choice import Chosen, plain_command
from fscil_bench.reporting.measures import MEASURES
from fscil_bench.reporting.statistics import PAIRING
from fscil_bench.request import seeds_text
from fscil_bench.running.commands import command_for
from fscil_bench.spec import RunSpec, brought_title


def lacking_runs(chosen: Chosen) -> list[Lack]:
    """Return the runs that a complete table would have and the store has not.

    Asked for by name: every method, representation and seed of the selection. Otherwise: the
    seeds that some row has and another lacks.
    """
    every = set(chosen.frame[list(PAIRING)].itertuples(index=False, name=None))
    lacks = [lack for label in chosen.labels for lack in _of_row(label, chosen, every)]
    return lacks + list(_without_row(chosen))


def lacking_scores(chosen: Chosen, measures: Iterable[str]) -> list[Lack]:
    """Return the runs without the scores that some of the measures are counted from.

    Runs with scores that a measure has no value for (no later classes, say) are none.
    """
    scored = [key for key in measures if MEASURES[key].scored]
    headings = ", ".join(MEASURES[key].heading for key in scored)
    lacks = []
    for label in chosen.labels if scored else ():
        runs = chosen.of(label)
        bare = [not chosen.results.run(str(key)).has_artifacts for key in runs.index]
        for representation_seed, own in runs[bare].groupby("representation_seed"):
            number, seeds = int(str(representation_seed)), own["seed"].tolist()
            command = _command(chosen, chosen.spec(label), number, seeds)
            what = f"scores for {headings}: {label}, {_seeds_in_words(seeds)}"
            lacks.append(Lack(what, f"{command} --artifacts"))
    return lacks


def _of_row(label: str, chosen: Chosen, every: set[tuple[int, int]]) -> Iterator[Lack]:
    axes, wanted = chosen.axes(label), every
    if chosen.results.selection.seeds:
        own = {representation_seed for representation_seed, _ in axes}
        wanted = {(first, seed) for first in own for seed in chosen.results.selection.seeds}
    seeds: dict[int, list[int]] = {}
    for representation_seed, seed in sorted(wanted - axes):
        seeds.setdefault(representation_seed, []).append(seed)
    for representation_seed, own_seeds in seeds.items():
        what = f"{label}, {_seeds_in_words(own_seeds)}"
        if representation_seed:
            what += f", representation_seed {representation_seed}"
        yield Lack(what, _command(chosen, chosen.spec(label), representation_seed, own_seeds))


def _seeds_in_words(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {seeds_text(seeds)}"


def _command(chosen: Chosen, spec: RunSpec, representation_seed: int, seeds: Sequence[int]) -> str:
    changes: dict[str, object] = {"seed": representation_seed}
    brought, frame = spec.representation, chosen.frame
    alike = frame["representation"] == brought_title(brought)
    made = frame[alike & (frame["representation_seed"] == representation_seed)]
    if len(made):  # another precision would be another network
        changes["precision"] = made["precision"].iloc[0]
    wanted = {"representation": brought.model_copy(update=changes), "seed": seeds[0]}
    return command_for(spec.model_copy(update=wanted), chosen.results.registry, seeds)


def _without_row(chosen: Chosen) -> Iterator[Lack]:
    """Yield the runs of what was asked for by name and has no row at all."""
    selection, frame = chosen.results.selection, chosen.frame
    stored = {(spec.method, spec.representation.name) for spec in chosen.specs.values()}
    methods = selection.methods or sorted({method for method, _ in stored})
    seeds = selection.seeds or sorted(set(frame["seed"])) or (0,)
    for method in methods:
        for representation in selection.representations or (None,):
            if any(m == method and representation in (None, r) for m, r in stored):
                continue
            name = f"{method} [{representation}]" if representation else method
            command = plain_command(method, chosen.results, representation, seeds_text(seeds))
            yield Lack(f"{name}, {_seeds_in_words(seeds)}", command)
