"""What a study runs: settings whose runs differ in their seeds alone, and how these are told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fscil_bench.errors import UsageError
from fscil_bench.params import params_dict, parse_params, words
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.request import Design, RunRequest, Wanted
from fscil_bench.running.commands import default_params
from fscil_bench.spec import RunSpec, digest_of


@dataclass(frozen=True)
class Variant:
    """A setting, and the seeds to run it with.

    Attributes:
        method: its name.
        params: its parameters, where they differ from the defaults.
        seeds: of shots and noise.
        split: which shots are drawn.
        overrides: fields of the protocol that are changed.
        representation: what is trained on the base session, at its defaults, with seed 0.
        artifacts: whether the method's named arrays are needed.
        episodes: few-shot episodes instead of sessions; the split then means nothing.
    """

    method: str
    params: Mapping[str, Any]
    seeds: tuple[int, ...]
    split: str = "seeded"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    representation: str = "cosine"
    artifacts: bool = False
    episodes: Design | None = None

    def identity(self, protocol: Protocol, registry: Registry) -> str:
        """Return what its runs on a protocol have in common, as `identity_of` and designs do.

        Raises:
            UsageError: an unknown method, parameter or value.
        """
        changed = protocol.override(**self.overrides) if self.overrides else protocol
        params = params_dict(typed_params(self.method, self.params, changed, registry))
        brought = default_params(registry, "representation", self.representation, changed)
        split = "seeded" if self.episodes else self.split
        named = [self.method, params, split, "plain", self.representation, brought, 0]
        return _digest(named, changed)

    def wanted(self, protocol: str, seed: int) -> Wanted:
        """Return the request for one seed; `protocol` is the name that it is registered by."""
        request = RunRequest(
            method=self.method,
            protocol=protocol,
            representation=self.representation,
            params=self.params,
            seed=seed,
            split=None if self.episodes else self.split,
            overrides=self.overrides,
        )
        return Wanted(request, self.artifacts, self.episodes)


def identity_of(spec: RunSpec) -> str:
    """Identify all that a user sets of a run, but its seed."""
    brought = spec.representation
    named = [spec.method, spec.params, spec.split, spec.views]
    return _digest([*named, brought.name, brought.params, brought.seed], spec.protocol)


def typed_params(
    method: str,
    settings: Mapping[str, Any],
    protocol: Protocol,
    registry: Registry,
    owner: str | None = None,
) -> Any:
    """Return a method's parameters as a run of these settings on a protocol has them.

    Raises:
        UsageError: an unknown method, parameter or value; it names `owner` as wrong.
    """
    schema = registry.get("method", method).value.Params
    stated = default_params(registry, "method", method, protocol)
    return parse_params(owner or f"method {method!r}", schema, {**stated, **settings})


def wanted_runs(
    variants: Iterable[Variant], protocol: Protocol, registry: Registry
) -> dict[tuple[str, Design | None, int], Wanted]:
    """Return each run once, by identity, design and seed; with artifacts if any variant needs them.

    Raises:
        UsageError: an unknown method, parameter or value.
    """
    found = {}
    for variant in variants:
        identity = variant.identity(protocol, registry)
        for seed in variant.seeds:
            key = identity, variant.episodes, seed
            if key not in found or variant.artifacts:
                found[key] = variant.wanted(protocol.name, seed)
    return found


def settings(text: str) -> dict[str, str]:
    """Return the parameters of `name=value,name=value`.

    Raises:
        UsageError: an entry has no `=`, or a name is there twice.
    """
    found: dict[str, str] = {}
    for entry in words(text):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not equals:
            raise UsageError(f"{entry!r} in {text!r}: write name=value,name=value")
        if name in found:
            raise UsageError(f"{text!r} sets {name!r} twice: give it one value")
        found[name] = value
    return found


def _digest(named: list[Any], protocol: Protocol) -> str:
    # Stored parameters have been through JSON, which makes lists of tuples.
    return digest_of([*json.loads(json.dumps(named)), protocol.model_dump(mode="json")])
