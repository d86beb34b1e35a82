"""Many runs, one after the other: what a command or a call asks for, and making all of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import FscilError, UsageError, WriteError, nearest
from fscil_bench.plugins.registry import Registry, expand_methods
from fscil_bench.progress import Progress
from fscil_bench.request import Names, RunRequest, Seeds, parse_seeds, words
from fscil_bench.running.feature_runs import lacking as lacking_features
from fscil_bench.running.tuning import with_choices
from fscil_bench.running.workbench import Workbench

Plan = TypeVar("Plan")
Made = TypeVar("Made")


def requested(
    bench: Workbench,
    method: Names,
    protocol: Names,
    *,
    representation: Names = REPRESENTATION,
    seed: Seeds = 0,
    representation_seed: Seeds = 0,
    params: Mapping[str, Any] | None = None,
    representation_params: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    tuned: bool = False,
    **shared: Any,
) -> list[RunRequest]:
    """Return runs of every method on every protocol and representation, over seeds.

    Args:
        bench: knows the plug-ins, and is told which methods of a group cannot stand somewhere.
        method: names, or words for groups of methods.
        protocol: names, or TOML files.
        representation: names.
        seed: of shots and the methods' own noise.
        representation_seed: of base training.
        params: of all methods, or of one as `METHOD.name`.
        representation_params: of all representations.
        overrides: fields of the protocols or their recipes that are changed.
        tuned: whether to take the parameters that were chosen.
        shared: further fields of every request.

    Raises:
        UsageError: an unknown method, representation or parameter, or nothing is asked for.
    """
    given = {"method": method, "protocol": protocol, "representation": representation}
    named = {kind: words(names, kind) for kind, names in given.items()}
    for kind, names in named.items():
        if not names:
            raise UsageError(f"--{kind} names no {kind}; `fscil-bench list {kind}s` lists them")
    seeds, base_seeds = parse_seeds(seed), parse_seeds(representation_seed)
    if not seeds or not base_seeds:
        raise UsageError("seeds: no seed is named")
    registry = bench.registry
    own = assigned(params or {}, expand_methods(named["method"], registry), registry)
    for name in named["method"]:
        refuse_uncarried(name, named["representation"], registry)
    for line in without_their_own(named["method"], named["representation"], registry):
        bench.progress.say(line)
    requests = [
        RunRequest(
            method=name,
            protocol=place,
            representation=brought,
            params=own[name],
            representation_params=representation_params or {},
            seed=each,
            representation_seed=base_seed,
            overrides=overrides or {},
            **shared,
        )
        for place in named["protocol"]
        for brought in named["representation"]
        for base_seed in base_seeds
        for name in fitting_methods(
            named["method"],
            brought,
            registry,
            bench.progress.say,
            bench.data.feature_path(*registry.protocol(place)) is not None,
        )
        for each in seeds
    ]
    return with_choices(bench, requests) if tuned else requests


def fitting_methods(
    asked: Sequence[str],
    representation: str,
    registry: Registry,
    say: Callable[[str], None],
    from_file: bool = False,
) -> list[str]:
    """Return the methods that can stand on a representation, and say which of a group cannot.

    With `from_file` they must do with features from a file.

    A method asked for by its own name stays where it needs what features from a file lack, so that
    it is refused with the reason.
    """
    brought = set(registry.get("representation", representation).value.extras)
    fitting = []
    for name in expand_methods(asked, registry):
        needs = registry.get("method", name).value.needs
        if from_file and name not in asked and (lack := lacking_features(needs)):
            say(f"{name} is left out, as features from a file lack {lack}")
            continue
        lacking = set(needs.extras) - brought
        if not lacking:
            fitting.append(name)
            continue
        say(
            f"{name} is left out on representation {representation}: its tensors "
            f"{', '.join(map(repr, sorted(lacking)))} come with {_bringing(lacking, registry)}"
        )
    return fitting


def refuse_uncarried(method: str, representations: Sequence[str], registry: Registry) -> None:
    """Refuse a method, or word for a group, that none of the representations can carry.

    Raises:
        UsageError: none brings its tensors; the message says which representation does.
    """
    if method not in registry.names("method"):
        return
    needed = set(registry.get("method", method).value.needs.extras)
    brought = [set(registry.get("representation", r).value.extras) for r in representations]
    if any(needed <= own for own in brought):
        return
    names = ", ".join(map(repr, sorted(needed)))
    raise UsageError(
        f"method {method!r} needs the tensors {names}, which come with "
        f"{_bringing(needed, registry)} and not with {', '.join(representations)}; name it with "
        "--representation"
    )


def without_their_own(
    methods: Sequence[str], representations: Sequence[str], registry: Registry
) -> list[str]:
    """Say which methods are published with a representation of their own that is not asked for."""
    own = [name for name in methods if name in registry.names("representation")]
    return [
        f"{name} is published on --representation {name}; here it stands on "
        f"{', '.join(representations)}"
        for name in own
        if name not in representations
    ]


def assigned(
    settings: Mapping[str, Any], methods: Sequence[str], registry: Registry
) -> dict[str, dict[str, Any]]:
    """Give each method its settings: `name` to all of them, `METHOD.name` to one.

    Raises:
        UsageError: a setting names a method or parameter that is not there.
    """
    found: dict[str, dict[str, Any]] = {method: {} for method in methods}
    for name, value in settings.items():
        owner, dot, rest = name.rpartition(".")
        if dot and owner not in found:
            raise UsageError(f"--set {name}: {owner!r} is not run; {nearest(owner, methods)}")
        for method in [owner] if dot else methods:
            if not dot and len(methods) > 1:
                _check_known(name, method, registry)
            found[method][rest] = value
    return found


def make_all(
    plans: Sequence[Plan],
    make: Callable[[Plan], Made],
    title: Callable[[Plan], str],
    progress: Progress,
    told: Callable[[str, Made | BaseException], None],
    kind: str = "runs",
    alike: Callable[[Plan], Hashable] = lambda _: None,
) -> list[Made]:
    """Make every plan, in order; one's failure does not cost the others theirs.

    Once nothing can be written, no other is begun.

    Args:
        plans: what is made.
        make: makes one of them.
        title: names it.
        progress: shows how far the whole is.
        told: is given each title with what was made, or with the error.
        kind: what the plans are, for messages.
        alike: is equal for plans that take the same time, once what they share is there.

    Raises:
        FscilError: some failed. The error of a single plan is raised as it is.
        WriteError: results cannot be written.
    """
    made, failures = [], 0
    with progress.task(kind, len(plans), [alike(plan) for plan in plans]) as task:
        for number, plan in enumerate(plans):
            task.update(number, title(plan))
            try:
                made.append(make(plan))
                told(title(plan), made[-1])
            except WriteError:
                raise
            except (Exception, SystemExit) as error:
                if len(plans) == 1:
                    raise
                failures += 1
                told(title(plan), error)
            task.update(number + 1)
    if failures:
        rest = "; the others are stored" if made else ""
        raise FscilError(f"{failures} of {len(plans)} {kind} failed{rest}")
    return made


def _check_known(name: str, method: str, registry: Registry) -> None:
    schema = registry.get("method", method).value.Params
    known = schema.__dataclass_fields__
    if name not in known:
        told = nearest(name, known) if known else "it has none"
        raise UsageError(
            f"--set {name}: method {method!r} has no such parameter; {told}; to set one for one "
            f"method alone write --set METHOD.{name}=VALUE"
        )


def _bringing(extras: set[str], registry: Registry) -> str:
    names = [
        name
        for name in registry.names("representation")
        if extras <= set(registry.get("representation", name).value.extras)
    ]
    return f"representation {' or '.join(names)}" if names else "no registered representation"
