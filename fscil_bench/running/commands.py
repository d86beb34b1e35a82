"""Command lines that make a given run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.params import DIGEST, params_dict, parse_params, published_params
from fscil_bench.plugins.registry import FILE, Registry
from fscil_bench.protocol import FEATURES, Protocol, Recipe
from fscil_bench.request import Wanted, seeds_text
from fscil_bench.running.pseudo import SUFFIX
from fscil_bench.running.sessions import LISTED
from fscil_bench.spec import RepresentationSpec, RunSpec, features_name
from fscil_bench.training.networks import packaged_names

UNKNOWN_FOLDER = "PATH/TO"
"""What a user has to fill in: where a file of theirs lies that was not given."""
NETWORK, WEIGHTS, FEATURE_FILE = "--network", "--weights", "--features"
"""The options that take a network, or features, in place of one that is trained, or weights."""


def default_params(
    registry: Registry, kind: str, name: str, protocol: Protocol | None = None
) -> dict[str, Any]:
    """Return a registered plug-in's default parameters as JSON values; {} if it is unknown.

    For a protocol, what its paper states for it lies over them.
    """
    try:
        plugin = registry.get(kind, name)
    except UsageError:
        return {}
    # Stored parameters have been through JSON, which makes lists of tuples.
    stated: Mapping[str, Any] = {}
    if protocol is not None:
        own = protocol.name.removesuffix(SUFFIX)
        stated = published_params(plugin.value, (own, *protocol.published_as))
    params = parse_params(name, plugin.value.Params, stated)
    values: dict[str, Any] = json.loads(json.dumps(params_dict(params)))
    return values


def named_with_changes(spec: RunSpec, registry: Registry) -> str:
    """Return a run's method with those of its parameters that are not the protocol's defaults."""
    usual = default_params(registry, "method", spec.method, spec.protocol)
    changed = [f"{name}={value}" for name, value in spec.params.items() if usual.get(name) != value]
    return " ".join([spec.method, *changed])


def changes(protocol: Protocol, registry: Registry) -> dict[str, Any]:
    """Return the overrides that make the registered protocol of that name into this one.

    What a file that is not registered says cannot be known: of its protocol, epochs, classes and
    shots are all told. Base classes and sessions of a pseudo-incremental one follow from the rest.
    """
    pseudo = protocol.test_from_train is not None
    name = protocol.name.removesuffix(SUFFIX) if pseudo else protocol.name
    names = ["way", "shot", *([] if pseudo else ["base_classes"]), "class_order", "backbone"]
    values = {"epochs": protocol.recipe.epochs} | {n: getattr(protocol, n) for n in names}
    if name not in registry.names("protocol"):
        return values
    registered, _ = registry.protocol(name)
    usual = vars(registered) | {"epochs": registered.recipe.epochs}
    found = {n: value for n, value in values.items() if usual[n] != value}
    implied = registered.override(**found)
    if not pseudo and implied.sessions != protocol.sessions:
        found["sessions"] = protocol.sessions
    recipe = vars(protocol.recipe).items()
    return found | {n: value for n, value in recipe if getattr(implied.recipe, n) != value}


def override_words(overrides: Mapping[str, Any]) -> list[str]:
    """Return the options that change a protocol so: `--way 5`, `--recipe lr=0.1`."""
    words = []
    for name, value in overrides.items():
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        if name in Recipe.model_fields and name != "epochs":
            words += ["--recipe", f"{name}={text}"]
        else:
            words += [f"--{name.replace('_', '-')}", text]
    return words


def command_for(spec: RunSpec, registry: Registry, seeds: Sequence[int] = ()) -> str:
    """Return the command line that makes a run like `spec`, as far as options can say it.

    With `seeds` it makes one run for each of them.

    Of a protocol or method that is not registered the file is a place to fill in.
    """
    brought, protocol = spec.representation, spec.protocol
    pseudo = protocol.test_from_train is not None
    name = protocol.name.removesuffix(SUFFIX) if pseudo else protocol.name
    words = [*plugin_words(registry, spec.method, protocol.dataset, brought.name, brought.backbone)]
    words += ["--method", spec.method]
    words += ["--protocol", protocol_word(name, registry)]
    words += ["--pseudo-incremental"] if pseudo else []
    if brought.name != REPRESENTATION:
        words += ["--representation", brought.name]
    if spec.split == LISTED:
        words += ["--index-list", "DIR"]
    elif spec.split != protocol.split:
        words += ["--split", spec.split]
    words += ["--seeds", seeds_text(seeds or (spec.seed,))]
    if brought.seed:
        words += ["--representation-seed", str(brought.seed)]
    changed = changes(protocol, registry)
    from_file = brought.backbone == FEATURES
    if brought.network or from_file:  # no recipe is followed
        changed = {n: value for n, value in changed.items() if n not in Recipe.model_fields}
    if from_file:
        changed.pop("backbone", None)
    words += override_words(changed)
    words += _network_words(brought)
    words += _feature_words(spec, registry)
    words += ["--precision", brought.precision] if not from_file else []
    if brought.devices > 1 and not brought.network:
        words += ["--devices", str(brought.devices)]
    words += ["--views", spec.views] if spec.views != "plain" else []
    defaults = default_params(registry, "method", spec.method, protocol)
    words += _settings("--set", spec.params, defaults)
    defaults = default_params(registry, "representation", brought.name, protocol)
    if not brought.network and not from_file:
        words += _settings("--set-representation", brought.params, defaults)
    return f"fscil-bench run {shlex.join(words)}"


def _feature_words(spec: RunSpec, registry: Registry) -> tuple[str, ...]:
    """Return the option that names a file of features, unless the protocol names that very file."""
    file = features_name(spec.representation)
    name = spec.protocol.name.removesuffix(SUFFIX)
    known = registry.plugins.get("protocol", {}).get(name)
    named = known.value.features if known is not None else None
    if not file or (named and Path(named).stem == file):
        return ()
    return FEATURE_FILE, f"{UNKNOWN_FOLDER}/{file}"


def _network_words(brought: RepresentationSpec) -> tuple[str, ...]:
    """Return the option that names what a network starts from, or the network that is taken."""
    if brought.network:
        unknown = f"{UNKNOWN_FOLDER}/NETWORK.safetensors"
        return NETWORK, packaged_names().get(brought.network, unknown)
    file = re.match(r"(.+) \(sha256 \w+\)$", brought.pretraining)
    return (WEIGHTS, f"{UNKNOWN_FOLDER}/{file[1]}") if file else ()


class Standing(NamedTuple):
    """What runs stand on, beside a representation's name.

    Attributes:
        source: what a network was taken or started from, or the file of features; else empty.
        words: the options that name it.
        seed: the representation seed of a network that was taken.
    """

    source: str = ""
    words: tuple[str, ...] = ()
    seed: int = 0

    @property
    def is_trained(self) -> bool:
        """Whether a recipe is followed, from whatever weights."""
        return not self.words or self.words[0] == WEIGHTS


def standing_of(spec: RunSpec, registry: Registry) -> Standing:
    """Return what a run stands on."""
    brought = spec.representation
    if brought.backbone == FEATURES:
        return Standing(brought.pretraining, _feature_words(spec, registry))
    words = _network_words(brought)
    source = brought.network or (brought.pretraining if words else "")
    return Standing(source, words, brought.seed if brought.network else 0)


def standings_of(specs: Iterable[RunSpec], registry: Registry) -> dict[str, list[Standing]]:
    """Return, of each representation, what runs on it stand on."""
    found: dict[str, dict[Standing, None]] = {}
    for spec in specs:
        found.setdefault(spec.representation.name, {})[standing_of(spec, registry)] = None
    return {name: [*own] for name, own in found.items()}


def for_copies(command: str, registry: Registry, datasets: Collection[str]) -> str:
    """Return a command as it works where only unofficial copies of some data sets are there."""
    words = shlex.split(command)
    name = words[words.index("--protocol") + 1] if "--protocol" in words else ""
    try:
        dataset = registry.protocol(name)[0].dataset
    except (FscilError, OSError):
        return command  # the file is to be filled in
    given = dataset not in datasets or "--unofficial-data" in words
    return command if given else f"{command} --unofficial-data"


def wanted_commands(wanted: Iterable[Wanted], registry: Registry) -> list[str]:
    """Return the command lines that make what a report wants.

    One is for all runs that differ in seed, and for methods and representations of which the same
    is wanted.
    """
    seeds: dict[_Line, list[int]] = {}
    for each in wanted:
        seeds.setdefault(_line(each, registry), []).append(each.request.seed)
    methods: dict[tuple[_Line, str], list[str]] = {}
    for line, own in seeds.items():
        same = replace(line, method=""), seeds_text(own)
        methods.setdefault(same, []).append(line.method)
    representations: dict[tuple[_Line, str], list[str]] = {}
    for (line, told), own_methods in methods.items():
        same = replace(line, method=",".join(own_methods), representation=""), told
        representations.setdefault(same, []).append(line.representation)
    commands = []
    for (line, told), names in representations.items():
        words = replace(line, representation=",".join(names)).words
        commands.append(f"fscil-bench {shlex.join([*words, '--seeds', told])}")
    return commands


@dataclass(frozen=True)
class _Line:
    """A command line in parts."""

    start: tuple[str, ...]
    method: str
    protocol: str
    representation: str
    rest: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The line but for its seeds."""
        words = [*self.start, "--method", self.method, "--protocol", self.protocol]
        if self.representation != REPRESENTATION:
            words += ["--representation", self.representation]
        return [*words, *self.rest]


def _line(wanted: Wanted, registry: Registry) -> _Line:
    request, design = wanted.request, wanted.episodes
    protocol, _ = registry.protocol(request.protocol)
    backbone = str(request.overrides.get("backbone", protocol.backbone))
    brought = protocol.dataset, request.representation, backbone
    start = ["run" if design is None else "episodes"]
    start += plugin_words(registry, request.method, *brought)
    words = []
    if request.representation_seed:
        words += ["--representation-seed", str(request.representation_seed)]
    if design is not None:
        words += ["--way", str(design.way), "--shot", str(design.shot)]
        words += ["--queries", str(design.queries)] if design.queries is not None else []
        words += ["--episodes", str(design.episodes)]
    elif request.split not in (None, protocol.split):
        words += ["--split", str(request.split)]
    words += override_words(request.overrides)
    words += ["--views", request.views] if request.views != "plain" else []
    defaults = default_params(registry, "method", request.method, protocol)
    words += _settings("--set", request.params, defaults)
    words += _settings("--set-representation", request.representation_params, {})
    words += ["--artifacts"] if wanted.artifacts else []
    words += wanted.options
    place = protocol_word(request.protocol, registry)
    return _Line(tuple(start), request.method, place, request.representation, tuple(words))


def plugin_words(
    registry: Registry,
    method: str,
    dataset: str | None,
    representation: str,
    backbone: str = "",
) -> list[str]:
    """Return the options that bring what of these is not built in.

    A stored run does not say in which file its plug-ins were, so that a place to fill in stands
    for one that was not given again.
    """
    files = [] if method in registry.names("method") else [f"{UNKNOWN_FOLDER}/{method}.py"]
    named = (
        ("method", method),
        ("data set", dataset),
        ("representation", representation),
        ("backbone", backbone.partition(":")[0]),
    )
    for kind, name in named:
        plugin = registry.plugins.get(kind, {}).get(name or "")
        if plugin is not None and plugin.origin == FILE:
            files.append(str(plugin.file))
    return [word for file in dict.fromkeys(files) for word in ("--plugin", file)]


def protocol_word(name: str, registry: Registry) -> str:
    """Return how --protocol names it; of one that is not registered the file is not known."""
    plugin = registry.plugins.get("protocol", {}).get(name)
    if plugin is None:
        return name if name.endswith(".toml") else f"{UNKNOWN_FOLDER}/{name}.toml"
    return str(plugin.file) if plugin.origin == FILE else name


def _settings(option: str, params: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in params.items():
        if name not in defaults or defaults[name] != value:
            written = json.dumps(value) if isinstance(value, bool | list | dict) else str(value)
            if written.startswith(DIGEST):  # where that file lies is not known
                written = f"{UNKNOWN_FOLDER}/{written}"
            words += [option, f"{name}={written}"]
    return words
