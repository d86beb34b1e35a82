"""What runs on features from a file."""

from __future__ import annotations

from typing import Any

import numpy as np

from fscil_bench.data.feature_file import FeatureFile
from fscil_bench.data.reader import Dataset, ImageArray
from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import DataError, UsageError
from fscil_bench.method import Needs, batches
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
TUKEY = {"auto", "tukey"}
"""Spaces of methods that may ask for features that are not negative."""
ROWS = 4096
"""Rows of features looked at at once."""


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
    registry: Registry,
    holdout: float,
) -> None:
    """Refuse what cannot be run on features from a file, before anything is.

    `holdout` is the fraction of base training images that the protocol holds out.

    Raises:
        DataError: all features of a half are the same.
        UsageError: the method needs more than features, or a network or other views are asked
            for; the message says what runs.
    """
    method = registry.get("method", request.method)
    if lack := lacking(method.value.needs):
        raise UsageError(
            f"method {method.name!r} needs {lack}, which features from a file lack; --method "
            f"all-frozen takes those that run on {file.name}: {', '.join(_fitting(registry))}"
        )
    if file.constant:
        raise DataError(
            f"{file.name}: {file.constant}, so that no class can be told from another; look where "
            "they were computed or saved"
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


def refuse_negative(
    method: str,
    params: Any,
    file: FeatureFile,
    dataset: Dataset,
    protocol: Protocol,
    registry: Registry,
) -> None:
    """Refuse a method in Tukey space whose features, a file's, are negative somewhere.

    Base features alone decide what `space = auto` is, so that no test feature decides what is
    learnt; with features of the protocol's classes negative elsewhere it would fail half-way.

    Raises:
        UsageError: half and row are named, and what runs.
    """
    space = getattr(params, "space", None)
    if space not in TUKEY or not file.signed:
        return
    raw = _negative(dataset.train, protocol.base_classes) is not None  # what `auto` then is
    if raw and space == "auto":
        return
    found = _negative(dataset.train, protocol.classes_used)
    if found is None:
        found = _negative(dataset.test, protocol.classes_used)
    if found is None:
        return
    why = "is asked to work in"
    if space == "auto":
        why = "works, as space = auto and no base feature is negative, in"
    refused = {"tukey"} if raw else TUKEY
    usual = {name: registry.get("method", name).value.Params() for name in _fitting(registry)}
    able = [name for name, each in usual.items() if getattr(each, "space", None) not in refused]
    raise UsageError(
        f"method {method!r} {why} Tukey space, x^β, and {file.name} has negative features, in "
        f"{_place(file, found)}: --set {method}.space=raw takes them as they are; with their "
        f"defaults run: {', '.join(able)}"
    )


def _negative(half: ImageArray, classes: int) -> np.ndarray | None:
    """Return the first feature (D,) of the first so many classes that is negative somewhere."""
    assert half.features is not None  # the data set was read with the file
    for part in batches(len(half), ROWS):
        features = half.features[part]
        rows = (features < 0).any(axis=1) & (half.labels[part] < classes)
        if rows.any():
            return np.asarray(features[rows.argmax()])
    return None


def _place(file: FeatureFile, feature: np.ndarray) -> str:
    """Return where a file has a feature first: array and row."""
    for name, half in (("train", file.train), ("test", file.test)):
        rows = np.flatnonzero((half.features == feature).all(axis=1))
        if len(rows):
            return f"{name}_features: {half.row(rows[0])}"
    raise AssertionError("the feature is one of the file's")


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


def _fitting(registry: Registry) -> list[str]:
    """Return the methods that run on features alone."""
    named = {name: registry.get("method", name).value for name in registry.names("method")}
    return [name for name, method in named.items() if not lacking(method.needs)]
