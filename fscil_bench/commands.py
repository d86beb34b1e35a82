"""Command lines that make a given run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from fscil_bench.errors import UsageError
from fscil_bench.params import params_dict
from fscil_bench.protocol import Protocol
from fscil_bench.pseudo import SUFFIX
from fscil_bench.registry import Registry
from fscil_bench.sessions import LISTED
from fscil_bench.spec import RunSpec


def default_params(registry: Registry, kind: str, name: str) -> dict[str, Any]:
    """Return a registered plug-in's default parameters as JSON values; {} if it is unknown."""
    try:
        plugin = registry.get(kind, name)
    except UsageError:
        return {}
    # Stored parameters have been through JSON, which makes lists of tuples.
    values: dict[str, Any] = json.loads(json.dumps(params_dict(plugin.value.Params())))
    return values


def command_for(spec: RunSpec, registry: Registry) -> str:
    """Return the command line that makes a run like `spec`, as far as options can say it.

    A protocol or method that is not registered is written as a file of its name.
    """
    brought, protocol = spec.representation, spec.protocol
    pseudo = protocol.test_from_train is not None
    name = protocol.name.removesuffix(SUFFIX) if pseudo else protocol.name
    known = name in registry.names("protocol")
    words = [] if spec.method in registry.names("method") else ["--plugin", f"{spec.method}.py"]
    words += ["--method", spec.method, "--protocol", name + ("" if known else ".toml")]
    words += ["--pseudo-incremental"] if pseudo else []
    if brought.name != "cosine":
        words += ["--representation", brought.name]
    if spec.split == LISTED:
        words += ["--index-list", "DIR"]
    elif spec.split != protocol.split:
        words += ["--split", spec.split]
    words += ["--seeds", str(spec.seed)]
    if brought.seed:
        words += ["--representation-seed", str(brought.seed)]
    registered = registry.protocol(name)[0] if known else None
    # What a file that is not registered says cannot be known, so that everything is written.
    if registered is None or registered.recipe.epochs != protocol.recipe.epochs:
        words += ["--epochs", str(protocol.recipe.epochs)]
    words += _shape(protocol, registered)
    words += ["--precision", brought.precision]
    words += _settings("--set", spec.params, default_params(registry, "method", spec.method))
    defaults = default_params(registry, "representation", brought.name)
    words += _settings("--set-representation", brought.params, defaults)
    return f"fscil-bench run {shlex.join(words)}"


def _shape(protocol: Protocol, registered: Protocol | None) -> list[str]:
    """Return the options that make the registered protocol into this one.

    Base classes and sessions of a pseudo-incremental protocol follow from the others.
    """
    pseudo = protocol.test_from_train is not None
    names = ["way", "shot", *([] if pseudo else ["base_classes"]), "class_order"]
    if registered is not None:
        names = [name for name in names if getattr(registered, name) != getattr(protocol, name)]
        implied = registered.override(**{name: getattr(protocol, name) for name in names})
        names += ["sessions"] if not pseudo and implied.sessions != protocol.sessions else []
    return [
        word
        for name in names
        for word in (f"--{name.replace('_', '-')}", str(getattr(protocol, name)))
    ]


def _settings(option: str, params: Mapping[str, Any], defaults: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in params.items():
        if name not in defaults or defaults[name] != value:
            written = json.dumps(value) if isinstance(value, bool | list | dict) else str(value)
            words += [option, f"{name}={written}"]
    return words
