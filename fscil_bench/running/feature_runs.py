"""What runs on features from a file."""

from __future__ import annotations

from typing import Any

from fscil_bench.data.feature_file import FeatureFile
from fscil_bench.data.reader import Dataset
from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import UsageError
from fscil_bench.method import Method, Needs
from fscil_bench.options import Options
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import FEATURES, Protocol, Recipe
from fscil_bench.request import RunRequest
from fscil_bench.running.sessions import CanonicalShots

PLAIN = "plain"
"""The one view that a file has."""
TOLD_BY = (
    "draw others with --split seeded, name the data set's folder with --data-root DIR, or give a "
    "file that `fscil-bench features export` wrote"
)
"""What can be done where a file does not tell which of its rows are published shots."""
OF_NETWORKS = {*Recipe.model_fields, "backbone", "pretraining", "images"}
"""Fields of a protocol that say how a network comes about."""


def lacking(needs: Needs) -> str:
    """Return what a method needs that features from a file do not bring; empty if nothing."""
    views = sorted({*needs.features, *needs.base_views} - {PLAIN})
    parts = ["images"] if needs.images else []
    parts += [f"the view{'s' * (len(views) > 1)} {', '.join(views)}"] if views else []
    parts += [f"the tensors {', '.join(needs.extras)}"] if needs.extras else []
    return " and ".join(parts)


def refuse_unfit(
    request: RunRequest,
    options: Options,
    file: FeatureFile,
    params: Any,
    registry: Registry,
    holdout: float,
) -> None:
    """Refuse what cannot be run on features from a file, before anything is.

    `holdout` is the fraction of base training images that the protocol holds out.

    Raises:
        UsageError: the method needs more than features, a network or other views are asked for,
            or Tukey space is and features are negative; the message says what runs.
    """
    method = registry.get("method", request.method)
    if lack := lacking(method.value.needs):
        raise UsageError(
            f"method {method.name!r} needs {lack}, which features from a file lack; --method "
            f"all-frozen takes those that run on {file.name}: {', '.join(_fitting(registry))}"
        )
    recipe = {*Recipe.model_fields} - {"epochs"}
    networks = {
        f"--recipe {name}" if name in recipe else f"--{name}"
        for name in OF_NETWORKS & set(request.overrides)
    }
    networks |= {"--representation"} if request.representation != REPRESENTATION else set()
    networks |= {"--set-representation"} if request.representation_params else set()
    networks |= {"--weights"} if options.weights is not None else set()
    networks |= {"--network"} if options.network is not None else set()
    networks |= {"--views"} if request.views != PLAIN else set()
    networks |= {"--devices"} if options.devices > 1 else set()
    networks |= {"--precision"} if options.precision not in ("auto", "fp32") else set()
    if networks:
        raise UsageError(
            f"features come from the file {file.name}, where no network is trained or shows an "
            f"image: leave {', '.join(sorted(networks))} out"
        )
    # It decides what is held out and what a method learns from base data at random.
    if request.representation_seed and not holdout and not method.value.has_pretraining():
        raise UsageError(
            f"features come from the file {file.name}, and method {method.name!r} learns nothing "
            "else from base data by chance: with another --representation-seed it answers the "
            "same; leave it out"
        )
    if file.signed and in_tukey_space(params):
        able = [name for name in _fitting(registry) if not _tukey_by_default(registry, name)]
        raise UsageError(
            f"method {method.name!r} works in Tukey space, x^β, and {file.name} has negative "
            f"features: --set {method.name}.space=raw takes them as they are; with their defaults "
            f"run: {', '.join(able)}"
        )


def unlisted_shots(table: CanonicalShots, protocol: Protocol, dataset: Dataset) -> str:
    """Say that a file's rows cannot be told to be published shots; empty if they can."""
    train, keys = dataset.train, dataset.class_keys
    numbered = zip(train.labels.tolist(), train.numbers.tolist(), strict=True)
    there = {(keys[label], str(number)) for label, number in numbered}
    if all((key, sample) in there for _, key, samples in table.rows for sample in samples):
        return ""
    unread = f"data set {dataset.name!r} is not read, and " * (dataset.name != FEATURES)
    return (
        f"the published shots of protocol {protocol.name!r} cannot be told among the features: "
        f"{unread}no class_keys and train_numbers in the file name them"
    )


def in_tukey_space(params: Any) -> bool:
    """Return whether a method's parameters ask for non-negative features."""
    return getattr(params, "space", None) == "tukey"


def _fitting(registry: Registry) -> list[str]:
    """Return the methods that run on features alone."""
    named = {name: registry.get("method", name).value for name in registry.names("method")}
    return [name for name, method in named.items() if not lacking(method.needs)]


def _tukey_by_default(registry: Registry, name: str) -> bool:
    method: type[Method] = registry.get("method", name).value
    return in_tukey_space(method.Params())
