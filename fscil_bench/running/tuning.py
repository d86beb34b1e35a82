"""Choosing a method's parameters on the pseudo-incremental split, and using the stored choice."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import StoreError, UsageError, nearest, shown
from fscil_bench.metrics import Interval, average_accuracy, mean_interval
from fscil_bench.params import parse_params, words
from fscil_bench.plugins.registry import Registry
from fscil_bench.request import RunRequest, several
from fscil_bench.running.commands import override_words
from fscil_bench.running.workbench import Workbench
from fscil_bench.spec import RunSpec, digest_of
from fscil_bench.store.files import now, write_text
from fscil_bench.store.runs import Store, StoredRun

Criterion = Literal["last", "average", "harmonic"]
CRITERIA: dict[Criterion, Callable[[StoredRun], float]] = {
    "last": lambda run: run.accuracies[-1],
    "average": lambda run: average_accuracy(run.accuracies),
    "harmonic": lambda run: run.metrics[-1].harmonic,
}
"""What parameters are chosen by: a figure of each run, averaged over seeds."""


class Trial(BaseModel):
    """One setting and what it reached on the pseudo-incremental split, means over seeds."""

    model_config = ConfigDict(frozen=True)

    params: dict[str, Any]
    last: float
    average: float
    base: float
    new: float
    harmonic: float
    half_width: float | None
    """Of the criterion's 95 % Student-t interval over seeds; None for one seed."""


class Choice(BaseModel):
    """`tuned/PROTOCOL/REPRESENTATION/METHOD.json`: what was tried, and the setting that won.

    Attributes:
        params: the chosen values of the parameters that were varied or fixed.
        trials: every setting, best first.
        code: digest of the method as it was when it was tuned.
        terms: digest of the data, the classes and shots, the recipe and the representation.
    """

    model_config = ConfigDict(frozen=True)

    method: str
    protocol: str
    representation: str
    params: dict[str, Any]
    criterion: Criterion
    seeds: tuple[int, ...]
    trials: tuple[Trial, ...]
    code: str
    terms: str
    created: str

    @property
    def rule(self) -> str:
        """Say in a phrase how the parameters were chosen."""
        seeds = f"{len(self.seeds)} seed{'s' if len(self.seeds) > 1 else ''}"
        return (
            f"chosen on the pseudo-incremental split of base training data ({self.criterion} "
            f"accuracy, {len(self.trials)} settings, {seeds})"
        )


@dataclass(frozen=True)
class Tuning:
    """What to try: every combination of `grid`, with `fixed` beside it, on `seeds`.

    `request` is the run to tune for: its protocol, representation and overrides; its method's
    parameters are the fixed ones.
    """

    request: RunRequest
    grid: Mapping[str, Sequence[Any]]
    seeds: Sequence[int]
    criterion: Criterion = "last"

    def __post_init__(self) -> None:
        """Refuse what leaves nothing to choose, or nothing to choose by.

        Raises:
            UsageError: no seed, no parameter or value to try, or an unknown criterion.
        """
        if not isinstance(self.criterion, str) or self.criterion not in CRITERIA:
            known = nearest(str(self.criterion), CRITERIA)
            raise UsageError(f"unknown criterion {shown(self.criterion)}; {known}")
        if not self.seeds:
            raise UsageError("tune: seeds names no seed")
        if not self.grid:
            raise UsageError("tune: the grid names no parameter; name values, NAME=A,B,C")
        for name, values in self.grid.items():
            if not values:
                raise UsageError(f"tune: the grid names no value of {name}; write {name}=A,B,C")

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Every combination of the grid's values, the first parameter varying slowest."""
        combined = itertools.product(*self.grid.values())
        return [dict(zip(self.grid, values, strict=True)) for values in combined]

    def requests(self) -> Iterator[RunRequest]:
        """Yield the runs of all settings, seed by seed within a setting."""
        for setting in self.settings:
            params = {**self.request.params, **setting}
            for seed in self.seeds:
                yield replace(self.request, params=params, seed=seed, pseudo=True)


def checked_grid(
    registry: Registry, request: RunRequest, grid: Mapping[str, Sequence[Any]]
) -> dict[str, list[Any]]:
    """Return the grid with its values typed by the method's parameters, each once.

    Raises:
        UsageError: an unknown name or value, or a parameter that is fixed as well.
    """
    plugin = registry.get("method", request.method)
    checked: dict[str, list[Any]] = {}
    for name, values in grid.items():
        if name in request.params:
            raise UsageError(f"{name} is both fixed by --set and varied by --grid; leave one away")
        values = words(values) if isinstance(values, str) else values
        if not several(values):
            raise UsageError(f"grid: {name} = {shown(values)}: give a list of values")
        typed = [
            asdict(parse_params(f"method {plugin.name!r}", plugin.value.Params, {name: v}))
            for v in values
        ]
        checked[name] = list(dict.fromkeys(each[name] for each in typed))
    return checked


def default_grid(registry: Registry, method: str) -> Mapping[str, Sequence[Any]]:
    """Return the values that a method's author proposes to try.

    Raises:
        UsageError: it proposes none.
    """
    grid: Mapping[str, Sequence[Any]] = registry.get("method", method).value.tuning_grid
    if not grid:
        raise UsageError(
            f"method {method!r} proposes nothing to tune; name values with --grid NAME=A,B,C"
        )
    return grid


def choose(tuning: Tuning, runs: Sequence[StoredRun], registry: Registry) -> Choice:
    """Return the setting with the highest mean criterion; the earlier of two equals.

    `runs` are those of `tuning.requests()`, in that order.
    """
    plugin = registry.get("method", tuning.request.method)
    count = len(tuning.seeds)
    trials = []
    for number, setting in enumerate(tuning.settings):
        own = runs[number * count : (number + 1) * count]
        params = {**tuning.request.params, **setting}
        typed = asdict(parse_params(plugin.name, plugin.value.Params, params))
        trials.append(_trial({name: typed[name] for name in params}, own, tuning.criterion))
    ranked = sorted(trials, key=lambda trial: -getattr(trial, tuning.criterion))
    return Choice(
        method=tuning.request.method,
        protocol=runs[0].spec.protocol.name,
        representation=tuning.request.representation,
        params=ranked[0].params,
        criterion=tuning.criterion,
        seeds=tuple(tuning.seeds),
        trials=tuple(ranked),
        code=plugin.digest(),
        terms=terms(runs[0].spec),
        created=now(),
    )


def terms(spec: RunSpec) -> str:
    """Identify what a choice of parameters is good for: all of a run but method, seeds and code."""
    protocol = spec.protocol.model_dump(exclude={"name", "title"})
    return digest_of([protocol, spec.representation.shared("precision")])


def _trial(params: dict[str, Any], runs: Sequence[StoredRun], criterion: Criterion) -> Trial:
    def over_seeds(figure: Callable[[StoredRun], float]) -> Interval:
        return mean_interval([figure(run) for run in runs])

    return Trial(
        params=params,
        last=over_seeds(CRITERIA["last"]).mean,
        average=over_seeds(CRITERIA["average"]).mean,
        base=over_seeds(lambda run: run.metrics[-1].base).mean,
        new=over_seeds(lambda run: run.metrics[-1].new).mean,
        harmonic=over_seeds(CRITERIA["harmonic"]).mean,
        half_width=None if len(runs) < 2 else over_seeds(CRITERIA[criterion]).half_width,
    )


def tuned_choice(bench: Workbench, tuning: Tuning) -> tuple[Choice, str]:
    """Try every setting and store the choice; return it with the path of its file.

    Raises:
        FscilError: a run cannot be made.
    """
    plans = [bench.plan(each) for each in tuning.requests()]
    runs = []
    with bench.progress.task("runs", len(plans), [""] * len(plans)) as task:
        for number, plan in enumerate(plans):
            runs.append(bench.run(plan))
            task.update(number + 1, f"last {100 * runs[-1].accuracies[-1]:.2f} %")
    choice = choose(tuning, runs, bench.registry)
    protocol = bench.registry.protocol(tuning.request.protocol)[0].name
    path, replaced = store_choice(bench.store, protocol, choice)
    if replaced is not None and replaced.params != choice.params:
        figure = 100 * getattr(replaced.trials[0], replaced.criterion)
        bench.progress.say(
            f"replaces what was chosen before: {_named(replaced.params)} ({replaced.criterion} "
            f"{figure:.2f} %, {replaced.rule})"
        )
    return choice, path


def store_choice(store: Store, protocol: str, choice: Choice) -> tuple[str, Choice | None]:
    """Write a choice, and its trials as CSV beside it; return its path, and what it replaces.

    One on other terms that is there stays beside it, as METHOD-TERMS.json.
    """
    path = store.tuned_file(protocol, choice.representation, choice.method)
    kept = _on_terms(path, choice.terms)
    replaced = _stored(kept)
    if (earlier := _stored(path)) is not None:
        if earlier.terms == choice.terms:
            replaced = earlier
        else:
            aside = _on_terms(path, earlier.terms)
            with suppress(OSError):
                path.replace(aside)
                path.with_suffix(".csv").replace(aside.with_suffix(".csv"))
    kept.unlink(missing_ok=True)
    kept.with_suffix(".csv").unlink(missing_ok=True)
    write_text(path.with_suffix(".csv"), _csv(choice))
    write_text(path, choice.model_dump_json(indent=1) + "\n")
    return str(path), replaced


def _stored(path: Path) -> Choice | None:
    """Return the choice in a file; None if there is none that can be read."""
    with suppress(OSError, ValidationError):
        return Choice.model_validate_json(path.read_bytes())
    return None


def _on_terms(path: Path, terms: str) -> Path:
    """Return where a choice lies that one on other terms has taken the place of."""
    return path.with_stem(f"{path.stem}-{terms}")


def with_choices(bench: Workbench, requests: Sequence[RunRequest]) -> list[RunRequest]:
    """Return requests with the stored choices of their parameters, and say what these are.

    Raises:
        UsageError, StoreError: as `with_choice` does.
    """
    chosen = [with_choice(bench, request) for request in requests]
    for line in dict.fromkeys(f"{each.method} {_named(each.params)}" for each in chosen):
        bench.progress.say(f"tuned: {line}")
    for views in sorted({each.views for each in requests} - {"plain"}):
        bench.progress.say(f"tuned: chosen with plain views, used with {views}")
    return chosen


def with_choice(bench: Workbench, request: RunRequest) -> RunRequest:
    """Return a request with the stored choice of its parameters; those it names itself stay.

    Raises:
        UsageError: nothing was chosen for this method, protocol and representation, or on other
            terms: other data, classes, shots, training, or another version of the method.
        StoreError: the file is damaged.
    """
    protocol = bench.registry.protocol(request.protocol)[0].name
    path = bench.store.tuned_file(protocol, request.representation, request.method)
    asked = _terms(bench, request) if any(path.parent.glob(f"{path.stem}*.json")) else ""
    if (earlier := _on_terms(path, asked)).exists():
        path = earlier
    again = f"choose again with `{_command(bench, request)}`"
    if not path.exists():
        raise UsageError(
            f"no parameters were chosen for {request.method!r} on protocol {protocol!r}, "
            f"representation {request.representation!r} ({path} is not there); "
            f"{again.replace('choose again', 'choose them')}"
        )
    try:
        choice = Choice.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"{path}: damaged ({reason}); {again}") from error
    if choice.method != request.method:
        raise StoreError(f"{path}: damaged (it is about method {choice.method!r}); {again}")
    if choice.code != bench.registry.get("method", request.method).digest():
        raise UsageError(
            f"{path}: the method {request.method!r} has changed since its parameters were chosen; "
            f"{again}"
        )
    if choice.terms != asked:
        raise UsageError(
            f"{path}: these parameters were chosen on other terms than they are asked for: the "
            f"data, the classes, way or shots, the recipe or the representation differ; {again}"
        )
    kept = {name: value for name, value in choice.params.items() if name not in request.params}
    rule = choice.rule
    if request.views != "plain":
        rule += f"; chosen with plain views, used with {request.views}"
    if request.params:
        rule += f"; set by hand: {', '.join(sorted(request.params))}"
    return replace(request, params={**kept, **request.params}, chosen=rule)


def _terms(bench: Workbench, request: RunRequest) -> str:
    """Return on what terms parameters for a request have to be chosen.

    For a network that is taken they are chosen in front of one trained by its recipe.
    """
    overrides = dict(request.overrides)
    if bench.options.network is not None:
        overrides |= vars(bench.plan(replace(request, params={})).spec.representation.recipe)
        options = bench.options.changed(network=None)
        bench = Workbench(bench.store, bench.registry, bench.progress, options)
    only = replace(request, params={}, pseudo=True, split=None, index_list=None)
    return terms(bench.plan(replace(only, overrides=overrides)).spec)


def _command(bench: Workbench, request: RunRequest) -> str:
    """Return the command that chooses parameters for a request."""
    words = ["tune", "--method", request.method, "--protocol", request.protocol]
    if request.representation != REPRESENTATION:
        words += ["--representation", request.representation]
    words += override_words(request.overrides)
    if not bench.registry.get("method", request.method).value.tuning_grid:
        words += ["--grid", "NAME=A,B,C"]
    return bench.options.changed(network=None).command(*words)


def table(choice: Choice) -> str:
    """Return the trials as a Markdown table, best first; accuracies in %."""
    lines = [
        f"| parameters | last | avg | base | new | HM | ± ({choice.criterion}) |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for trial in choice.trials:
        figures = (trial.last, trial.average, trial.base, trial.new, trial.harmonic)
        cells = [f"{100 * figure:.2f}" for figure in figures]
        cells.append("" if trial.half_width is None else f"{100 * trial.half_width:.2f}")
        lines.append(f"| {_named(trial.params)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def close_call(choice: Choice) -> str:
    """Say so where the winner leads the next setting by less than its interval's half-width."""
    if len(choice.trials) < 2 or choice.trials[0].half_width is None:
        return ""
    first, second = (getattr(trial, choice.criterion) for trial in choice.trials[:2])
    if first - second > choice.trials[0].half_width:
        return ""
    return (
        f"a close call: the next setting is {100 * (first - second):.2f} points below, less than "
        "the interval of the mean over seeds"
    )


def _named(params: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items())


def _csv(choice: Choice) -> str:
    figures = ("last", "average", "base", "new", "harmonic", "half_width")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*choice.params, *figures])
    for trial in choice.trials:
        reached = [getattr(trial, name) for name in figures]
        writer.writerow([*(trial.params[name] for name in choice.params), *reached])
    return text.getvalue()
