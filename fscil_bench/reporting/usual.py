"""Which specifications are the usual ones of a protocol: nothing changed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fscil_bench.defaults import RULER, STRONGER
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.labels import changed_params
from fscil_bench.running.commands import default_params
from fscil_bench.spec import RunSpec


def registered_protocol(spec: RunSpec, registry: Registry) -> Protocol:
    """Return a run's protocol as it is registered, or as the run knows it."""
    name = spec.protocol.name
    if name not in registry.names("protocol"):
        return spec.protocol
    protocol: Protocol = registry.get("protocol", name).value
    return protocol


def usual_params(spec: RunSpec, registry: Registry) -> bool:
    """Return whether a method has its defaults, or what its paper states for the protocol.

    A parameter that only the run or only today's code knows is not looked at; of a method that is
    not registered nothing is known, so that any parameters are usual.
    """
    return _usual(registry, "method", spec.method, spec, spec.params)


def usual_representation(spec: RunSpec, registry: Registry) -> bool:
    """Return the same of the representation."""
    brought = spec.representation
    return _usual(registry, "representation", brought.name, spec, brought.params)


def usual_run(spec: RunSpec, registry: Registry) -> bool:
    """Return whether a run is what its protocol and its plug-ins say, all options left alone.

    Not so one of earlier code, which knew other parameters.
    """
    known = default_params(registry, "method", spec.method)
    return (
        set(spec.params) == set(known or spec.params)
        and usual_params(spec, registry)
        and usual_representation(spec, registry)
        and on_own_terms(spec, registry)
        and spec.views == "plain"
    )


def on_own_terms(spec: RunSpec, registry: Registry, *apart: str, split: str | None = None) -> bool:
    """Return whether a run is on its protocol's shots, sessions and recipe, but for some fields.

    `split` is what takes the place of the protocol's own.
    """
    protocol = registered_protocol(spec, registry)
    return alike(spec.protocol, protocol, *apart) and spec.split == (split or protocol.split)


def alike(one: Protocol, two: Protocol, *apart: str) -> bool:
    """Return whether two protocols are the same but for some fields.

    Where their data lie is no part of that: a run does not record it.
    """
    return one.model_dump(exclude=set(apart)) == two.model_dump(exclude=set(apart))


def ruler_variant(spec: RunSpec, registry: Registry) -> str:
    """Return `default` or `stronger` for the ruler's two rows, else nothing."""
    if spec.method != RULER:
        return ""
    if usual_params(spec, registry):
        return "default"
    changed = changed_params(registry, "method", spec.method, spec.params)
    return "stronger" if changed == STRONGER else ""


def _usual(
    registry: Registry, kind: str, name: str, spec: RunSpec, params: Mapping[str, Any]
) -> bool:
    return any(
        all(values.get(key, value) == value for key, value in params.items())
        for values in (
            default_params(registry, kind, name),
            default_params(registry, kind, name, spec.protocol),
        )
    )
