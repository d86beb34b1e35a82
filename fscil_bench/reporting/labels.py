"""Names of table rows, made from what tells the rows apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fscil_bench.defaults import REPRESENTATION
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import FEATURES, Protocol
from fscil_bench.running.commands import default_params
from fscil_bench.spec import RunSpec

PLAIN = "plain"
"""How features are read unless a label says otherwise."""

SHAPE = ("base_classes", "sessions", "way", "shot", "class_order")
"""Fields of a protocol that say how it is cut into sessions."""

_ABSENT = object()
_COPIED = ("dataset", "base_classes", "backbone", "pretraining", "images", "recipe")
"""Fields that a representation takes from the protocol."""


@dataclass(frozen=True)
class RowName:
    """The parts of a row's label; `representation` stands in brackets, or is "" if left unsaid."""

    method: str
    representation: str
    settings: tuple[str, ...]

    def __str__(self) -> str:
        settings = f"({', '.join(self.settings)})" if self.settings else ""
        return " ".join(filter(None, (self.method, self.representation, settings)))


def row_labels(specs: Sequence[RunSpec], registry: Registry) -> list[str]:
    """Return a name for each table row: the method's title, and what tells it from its other rows.

    `LDC [fact, dim=20] (steps=3, epochs=5)`: in brackets the representation, unless it is the
    baseline's; then the parameters that are neither the defaults nor the paper's for the protocol,
    the one parameter in which the rows of a method differ if there is just one, settings that
    differ between them, and views that are not plain. How classes are cut into sessions,
    the file that features come from, and the network that was taken for a representation are told
    wherever they differ, be it between rows of several methods.
    """
    return [str(name) for name in row_names(specs, registry)]


def row_names(specs: Sequence[RunSpec], registry: Registry) -> list[RowName]:
    """Return the same in parts."""
    shapes = [{name: _settings(spec)[name] for name in SHAPE} for spec in specs]
    shape = _differing(shapes)
    apart = [_brought_from(spec, specs) for spec in specs]
    return [
        _name(spec, [s for s in specs if s.method == spec.method], [*shape, *own], registry)
        for spec, own in zip(specs, apart, strict=True)
    ]


def differing_settings(specs: Sequence[RunSpec]) -> dict[str, list[str]]:
    """Return the settings that are not alike in all rows, with their values.

    Parameters and the choice of representation are not settings: they are what tables compare.
    """
    settings = [_settings(spec) for spec in specs]
    return {
        name: list(dict.fromkeys(_text(each.get(name, _ABSENT)) for each in settings))
        for name in _differing(settings)
    }


def named_values(values: Mapping[str, Any]) -> list[str]:
    """Return `name=value` for each entry."""
    return [f"{name}={_text(value)}" for name, value in values.items()]


def changed_params(
    registry: Registry,
    kind: str,
    name: str,
    params: Mapping[str, Any],
    protocol: Protocol | None = None,
) -> dict[str, Any]:
    """Return the parameters that are not a plug-in's defaults; none if these are not known.

    For a protocol, what its paper states for it lies over them.
    """
    defaults = default_params(registry, kind, name, protocol)
    return {key: v for key, v in params.items() if defaults.get(key, v) != v}


def method_title(name: str, registry: Registry) -> str:
    """Return what tables call a method: its title, unless another one has the same."""
    known = registry.plugins.get("method", {})
    titles = [plugin.title for plugin in known.values()]
    return known[name].title if name in known and titles.count(known[name].title) == 1 else name


def _name(
    spec: RunSpec, siblings: Sequence[RunSpec], apart: Sequence[str], registry: Registry
) -> RowName:
    representation = spec.representation
    same = [
        s.representation.params for s in siblings if s.representation.name == representation.name
    ]
    inner = _shown(spec, registry, "representation", same)
    said = inner or representation.name != REPRESENTATION
    brought = f"[{', '.join([representation.name, *inner])}]" if said else ""
    outer = _shown(spec, registry, "method", [s.params for s in siblings])
    # A network and a file of features are not told apart by how the network was trained.
    settings = [_settings(s) for s in siblings if _from_file(s) == _from_file(spec)]
    mine = _settings(spec)
    told = [name for name in mine if name == "views" and spec.views != PLAIN]
    told += [name for name in dict.fromkeys([*apart, *_differing(settings)]) if name not in told]
    outer += named_values({name: mine.get(name, _ABSENT) for name in told})
    return RowName(method_title(spec.method, registry), brought, tuple(outer))


def _shown(
    spec: RunSpec, registry: Registry, kind: str, siblings: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Return what a label says of a plug-in's parameters: the unusual and the distinguishing.

    Where rows differ in several parameters, one that has its default goes without saying.
    """
    own = (spec.method, spec.params)
    if kind == "representation":
        own = (spec.representation.name, spec.representation.params)
    name, params = own
    usual = default_params(registry, kind, name, spec.protocol)
    names = set(_differing(siblings))
    if len(names) > 1:
        unsaid = {key for key in usual if params.get(key, _ABSENT) == usual[key]}
        names -= unsaid
    names |= set(changed_params(registry, kind, name, params, spec.protocol))
    order = [key for key in params if key in names]
    order += sorted(names - set(params))
    return named_values({key: params.get(key, _ABSENT) for key in order})


def _settings(spec: RunSpec) -> dict[str, Any]:
    """Return, flat, everything that decides a row but method, representation and parameters."""
    data = spec.model_dump(mode="json")
    protocol, representation = data["protocol"], data["representation"]
    settings: dict[str, Any] = {"split": spec.split, "views": spec.views}
    for name, value in protocol.items():
        if name == "split":
            settings["default split"] = value
        elif name == "recipe":
            settings.update(value)
        elif name == "images":
            settings.update({f"image {key}": v for key, v in value.items()})
        else:
            settings[name] = value
    if _from_file(spec):
        return settings | {FEATURES: representation["pretraining"]}
    settings["data fingerprint"] = representation["data_fingerprint"]
    settings["devices"] = spec.representation.devices
    if spec.representation.network:
        settings["network"] = spec.representation.network_title
    for name in _COPIED:
        if representation[name] != protocol[name]:
            settings[f"representation's {name}"] = representation[name]
    return settings


def _brought_from(spec: RunSpec, specs: Sequence[RunSpec]) -> list[str]:
    """Return which of `features` and `network` a row has that are not the same in all rows."""
    if _from_file(spec):
        return [FEATURES] if len({_features_source(each) for each in specs}) > 1 else []
    brought = [each.representation for each in specs if not _from_file(each)]
    same = {each.network for each in brought if each.name == spec.representation.name}
    return ["network"] if spec.representation.network and len(same) > 1 else []


def _features_source(spec: RunSpec) -> str:
    """Return the file that features come from with its digest; empty if from a network."""
    return spec.representation.pretraining if _from_file(spec) else ""


def _from_file(spec: RunSpec) -> bool:
    return spec.representation.backbone == FEATURES


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names whose values are not alike in all mappings, in order of appearance."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [
        name
        for name in names
        if any(each.get(name, _ABSENT) != settings[0].get(name, _ABSENT) for each in settings)
    ]


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "unset"
    if isinstance(value, dict | list):
        return json.dumps(value, separators=(",", ":"))
    return str(value)
