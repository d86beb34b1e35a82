"""Where a representation comes from: trained here, released, of others, or features in a file.

An origin is one class: what it needs and refuses, what decides it, how it is made, and what a
table must say of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from torch import nn

from fscil_bench.backbone import Backbone, Reading
from fscil_bench.data.feature_file import FeatureFile, copied_rows, told_copies
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset
from fscil_bench.defaults import REPRESENTATION
from fscil_bench.errors import DataError, UsageError
from fscil_bench.params import params_dict
from fscil_bench.plugins.digest import engine_digest
from fscil_bench.plugins.registry import Plugin
from fscil_bench.protocol import FEATURES, ImageSpec, Protocol, Recipe
from fscil_bench.representation import Representation, TrainedRepresentation
from fscil_bench.request import RunRequest
from fscil_bench.running.datasets import Datasets
from fscil_bench.running.feature_runs import refuse_negative, refuse_unfit
from fscil_bench.running.sessions import CanonicalShots, hold_out
from fscil_bench.spec import UNMATCHED, Precision, RepresentationSpec, RunSpec
from fscil_bench.training.compute import faster_precision
from fscil_bench.training.distributed import DistributedTraining, Rank, refuse_indivisible
from fscil_bench.training.features import is_begun
from fscil_bench.training.given import given_features, given_network
from fscil_bench.training.loop import BaseTraining, LabelledImages, input_transform
from fscil_bench.training.networks import (
    NetworkFile,
    check_classes,
    check_fits,
    find_network,
    taken_network,
)
from fscil_bench.training.weights import (
    NONE,
    Pretraining,
    pretrained_tensors,
    resolve_pretraining,
    seen_before,
)

PUBLISHED = "published"
"""The pre-training of a representation that stands on published weights."""

Roots = tuple[Callable[..., Any], ...]
"""Where a digest of code starts."""
Made = tuple[TrainedRepresentation, tuple[np.ndarray, np.ndarray] | None]
"""A representation, and which base samples' features (n, D) were computed on the way, if any."""


@dataclass(frozen=True)
class Origin(ABC):
    """A request's origin.

    Attributes:
        data: where data sets come from, and what is shared beside them.
        device: where it is made.
        request: what was asked for.
        made: the registered representation, with its parameters.
        protocol: the request's, with what the origin settles of it.
        backbone: as the representation reads it.
        backbone_code: digest of the backbone's code.
    """

    roots: ClassVar[Roots]
    """Where the engine's digest of such a representation starts. How data are arranged, their
    fingerprint tells; how features are read is in the digest of a run, and keys their cache.
    """

    data: Datasets
    device: torch.device
    request: RunRequest
    made: Representation
    protocol: Protocol
    backbone: Backbone
    backbone_code: str

    def load(self, protocol: Protocol, folder: Path, listed: CanonicalShots | None) -> Dataset:
        """Return the data set, once what the origin needs beside it is known to be there.

        The shots that are `listed` are looked for before it is decoded.

        Raises:
            DataError: either is missing, damaged, or they do not fit each other.
            UsageError: the origin cannot be what is meant.
        """
        return self.data.of(protocol, folder, listed)

    def spec(
        self, brought: Plugin, params: Any, protocol: Protocol, dataset: Dataset
    ) -> RepresentationSpec:
        """Return what decides the representation; `brought` is its plug-in."""
        spec = RepresentationSpec(
            name=brought.name,
            params=params_dict(params),
            seed=self.request.representation_seed,
            dataset=dataset.name,
            data_fingerprint=dataset.fingerprint,
            base_classes=protocol.base_classes,
            class_order=protocol.class_order,
            backbone=protocol.backbone,
            pretraining=self.pretraining.title,
            images=protocol.images,
            recipe=protocol.recipe,
            precision="fp32",
            code=brought.digest(),
            engine=engine_digest(*self.roots),
            backbone_code=self.backbone_code,
            transform=self.backbone.input_of(protocol.images),
        )
        return self.settled(spec)

    def settled(self, spec: RepresentationSpec) -> RepresentationSpec:
        """Return the specification with what the origin says of it."""
        return spec

    @property
    @abstractmethod
    def pretraining(self) -> Pretraining:
        """What the network starts from, or stands for it."""

    @abstractmethod
    def make(self, spec: RunSpec, dataset: Dataset) -> Made:
        """Return the representation of a run, made now if it is not stored."""

    @abstractmethod
    def flags(self, protocol: Protocol, dataset: Dataset) -> list[str]:
        """Return what a table must say beside a row on it."""


@dataclass(frozen=True)
class Trained(Origin):
    """A network that is trained here on the base session."""

    roots: ClassVar[Roots] = (BaseTraining, hold_out, Images, ImageSpec, Protocol.session_classes)

    @cached_property
    def pretraining(self) -> Pretraining:
        """The weights that base training starts from."""
        given = self.data.options.weights
        weights = None if given is None else str(given)
        if self.made.pretrained and weights == NONE:
            raise UsageError(
                f"--weights none: representation {self.made.name!r} starts from pre-trained "
                "weights; leave it away, or give a file"
            )
        wanted = PUBLISHED if self.made.pretrained else self.protocol.pretraining
        return resolve_pretraining(self.backbone, wanted, weights)

    def load(self, protocol: Protocol, folder: Path, listed: CanonicalShots | None) -> Dataset:
        """Return the data set; of weights and data that are missing one error, data first."""
        try:
            _ = self.pretraining
        except DataError as weights:
            try:
                self.data.find(protocol, folder)
            except DataError as data:
                raise DataError(f"{data}\n{weights}") from data
            raise
        return super().load(protocol, folder, listed)

    def settled(self, spec: RepresentationSpec) -> RepresentationSpec:
        """Return it at the precision that the options ask for.

        `auto` is that of the network that is stored or half trained, so that no other measurement
        makes another; where there is none, or one of each, what is measured to be faster.
        """
        wanted, store = self.data.options.precision, self.data.store
        both = {name: spec.model_copy(update={"precision": name}) for name in get_args(Precision)}
        if wanted in both:
            return both[wanted]
        if not self.made.is_trained():
            return spec
        begun = [each for each in both.values() if is_begun(store, each.key)]
        if len(begun) == 1:
            return begun[0]
        folder = partial(store.cache_folder, "precision")
        size = input_transform(spec).size
        return both[faster_precision(self.backbone, size, self.device, folder)]

    def make(self, spec: RunSpec, dataset: Dataset) -> Made:
        """Train it, or take it up where training stopped."""
        own, train = spec.representation, dataset.train
        base, heldout = (
            LabelledImages(train.images, members, train.labels[members])
            for members in hold_out(dataset, spec.protocol, own.seed)
        )
        folder = self.data.store.representation_folder(own.key)
        return self.training(own, base, heldout).run(folder, self.data.progress), None

    def training(
        self, spec: RepresentationSpec, base: LabelledImages, heldout: LabelledImages
    ) -> BaseTraining:
        """Return the training on base images, of which some may be held out."""
        return BaseTraining(
            spec, self.made, self.backbone, base, heldout, self.device, self.pretraining
        )

    def flags(self, protocol: Protocol, dataset: Dataset) -> list[str]:
        """Return which new classes its pre-training has seen."""
        del dataset
        known = self.pretraining
        return [] if known.title == NONE else seen_before(protocol, known.data)


@dataclass(frozen=True)
class TrainedTogether(Trained):
    """A network that is trained here on the base session, on as many devices as options say."""

    roots: ClassVar[Roots] = (
        DistributedTraining,
        Rank,
        hold_out,
        Images,
        ImageSpec,
        Protocol.session_classes,
    )

    def load(self, protocol: Protocol, folder: Path, listed: CanonicalShots | None) -> Dataset:
        """Return the data set, likewise; a training that cannot be divided is refused."""
        refuse_indivisible(self.made, self.protocol.recipe, self.data.options.devices)
        return super().load(protocol, folder, listed)

    def settled(self, spec: RepresentationSpec) -> RepresentationSpec:
        """Return it with the number of devices, and likewise with a precision."""
        return super().settled(spec.model_copy(update={"devices": self.data.options.devices}))

    def training(
        self, spec: RepresentationSpec, base: LabelledImages, heldout: LabelledImages
    ) -> BaseTraining:
        """Return the training, which loads the plug-ins in every process."""
        made = DistributedTraining(
            spec, self.made, self.backbone, base, heldout, self.device, self.pretraining
        )
        made.plugins = self.data.options.plugin_files
        return made

    def flags(self, protocol: Protocol, dataset: Dataset) -> list[str]:
        """Return on how many devices it was trained, likewise."""
        return [f"devices: {self.data.options.devices}", *super().flags(protocol, dataset)]


@dataclass(frozen=True)
class Given(Trained):
    """A network of others, or a pre-trained one, taken as it starts: no base training follows."""

    roots: ClassVar[Roots] = (given_network, Images, ImageSpec, Protocol.session_classes)

    def load(self, protocol: Protocol, folder: Path, listed: CanonicalShots | None) -> Dataset:
        """Return the data set, likewise; a network that cannot be what is meant is refused."""
        if self.made.is_trained():
            self._refuse_unfit()
        return super().load(protocol, folder, listed)

    def make(self, spec: RunSpec, dataset: Dataset) -> Made:
        """Take the network, and the class means of base features where it has no classifier."""
        own, train = spec.representation, dataset.train
        base, _ = hold_out(dataset, spec.protocol, own.seed)
        made, features = given_network(
            own,
            self.made,
            self.backbone,
            LabelledImages(train.images, base, train.labels[base]),
            self.device,
            self.pretraining,
            self.data.store.representation_folder(own.key),
            self.data.progress,
        )
        if features is None or own.transform is None:
            return made, None
        return made, (base, features.numpy())

    def flags(self, protocol: Protocol, dataset: Dataset) -> list[str]:
        """Return whose network it is and, of a pre-trained one, which new classes it has seen."""
        known = "pre-trained network" if self.pretraining.data else "base network from a file"
        told = f"{known}: {self.pretraining.title}, no base training here"
        return [told, *(super().flags(protocol, dataset) if self.made.pretrained else [])]

    def _refuse_unfit(self) -> None:
        where, file = f"protocol {self.protocol.name!r}: recipe.epochs = 0", self.pretraining.file
        if file is None:
            raise UsageError(
                f"{where} trains nothing: give the base network with --weights FILE, or train one "
                "with --epochs 1 or more"
            )
        if self.request.representation != REPRESENTATION:
            raise UsageError(
                f"{where} takes the network of {file} as it is, and nothing of representation "
                f"{self.request.representation!r} is trained; leave --representation out"
            )
        if self.request.pseudo:
            raise UsageError(
                f"{where}: parameters are chosen in front of a network that has not seen the "
                f"classes that play new ones, which is not known of {file}; choose them with base "
                "training (--epochs 1 or more) and give them with --set"
            )


@dataclass(frozen=True)
class Released(Origin):
    """A network of `networks export`, with all that came out of its training."""

    roots: ClassVar[Roots] = (taken_network, Images, ImageSpec, Protocol.session_classes)

    network: NetworkFile

    @property
    def pretraining(self) -> Pretraining:
        """What it was trained from."""
        return Pretraining(self.network.card.spec.pretraining)

    def load(self, protocol: Protocol, folder: Path, listed: CanonicalShots | None) -> Dataset:
        """Return the data set, whose first classes are the network's."""
        dataset = super().load(protocol, folder, listed)
        check_classes(self.network, dataset)
        return dataset

    def settled(self, spec: RepresentationSpec) -> RepresentationSpec:
        """Return what decided it, but for the code that trained it: its digest decides."""
        return self.network.representation(spec)

    def make(self, spec: RunSpec, dataset: Dataset) -> Made:
        """Take the network."""
        del dataset
        own = spec.representation
        folder = self.data.store.representation_folder(own.key)
        return taken_network(own, self.network, self.backbone, self.device, folder), None

    def flags(self, protocol: Protocol, dataset: Dataset) -> list[str]:
        """Return whose network it is, and whether it stems from another copy of the data."""
        seen = [] if self.pretraining.title == NONE else seen_before(protocol, ())
        return [*self.network.flags(dataset.fingerprint), *seen]


@dataclass(frozen=True)
class FromFile(Origin):
    """Features from a file, in front of which no network stands; `params` are the method's."""

    roots: ClassVar[Roots] = (given_features, Protocol.session_classes)

    file: FeatureFile
    params: Any

    @property
    def pretraining(self) -> Pretraining:
        """What stands for it in keys and tables: the file's name and digest."""
        return Pretraining(self.file.title)

    def load(self, protocol: Protocol, folder: Path, listed: CanonicalShots | None) -> Dataset:
        """Return the data set; features whose sign the method cannot take are refused."""
        dataset = super().load(protocol, folder, listed)
        method, registry = self.request.method, self.data.registry
        refuse_negative(method, self.params, self.file, dataset, protocol, registry)
        return dataset

    def settled(self, spec: RepresentationSpec) -> RepresentationSpec:
        """Return it without a network; a fraction held out says what methods learn from."""
        holdout = spec.recipe.holdout
        params = spec.params | ({"holdout": holdout} if holdout else {})
        own = {"params": params, "backbone": FEATURES, "recipe": Recipe(epochs=0), "code": ""}
        return spec.model_copy(update=own)

    def make(self, spec: RunSpec, dataset: Dataset) -> Made:
        """Take the class means of base features as the base classifier."""
        own, train = spec.representation, dataset.train
        assert train.features is not None  # the data set was read with the file
        base, _ = hold_out(dataset, spec.protocol, own.seed)
        folder = self.data.store.representation_folder(own.key)
        rows, labels = train.features[base], train.labels[base]
        return given_features(own, self.made.scale(), rows, labels, folder), None

    def flags(self, protocol: Protocol, dataset: Dataset) -> list[str]:
        """Return how features came to samples, what their network may have seen, and copies."""
        train, test = dataset.train, dataset.test
        told = {
            "order": "features matched to samples by order",
            "file": UNMATCHED,
        }
        own = dataset.name == FEATURES  # nothing that it could have been matched with
        found = [told[dataset.matching]] if dataset.matching in told and not own else []
        if protocol.test_from_train is not None:
            found.append("features of a network that may have seen the classes that play new ones")
        assert train.features is not None and test.features is not None
        used = protocol.classes_used
        copies = sum(
            bool(test.labels[row] < used and train.labels[first] < used)
            for row, first in copied_rows(train.features, test.features)
        )
        return [*found, told_copies(copies)] if copies else found


class NoBackbone(Backbone):
    """What stands for the network where features come from a file: it shows no image."""

    name = FEATURES

    def __init__(self, dim: int) -> None:
        super().__init__()
        self._dim = dim

    @property
    def dim(self) -> int:
        """D of the file's features."""
        return self._dim

    def build(self) -> nn.Module:
        """Return the identity."""
        return nn.Identity()


class Origins:
    """Tells which origin a request names; a network in a file is read once."""

    def __init__(self, data: Datasets, device: torch.device) -> None:
        self.data, self.device = data, device
        self._networks: dict[tuple[str, str, int], NetworkFile] = {}

    def of(
        self,
        request: RunRequest,
        protocol: Protocol,
        folder: Path,
        made: Representation,
        params: Any,
    ) -> Origin:
        """Return a request's origin; `params` are the method's.

        Raises:
            DataError: a file of features or of a network is damaged, or holds none.
            UsageError: the origin is none for the request; the reason is given.
        """
        start, registry = (self.data, self.device, request, made), self.data.registry
        file = self.data.feature_file(protocol, folder)
        if file is not None:
            holdout = protocol.recipe.holdout
            refuse_unfit(request, self.data.options, file, registry, holdout)
            return FromFile(*start, protocol, NoBackbone(file.dim), "", file, params)
        if not made.is_trained():
            protocol = _untrained(request, protocol)
        network = self._network(request, protocol)
        if network is not None:
            protocol = protocol.override(**vars(network.card.spec.recipe))
        backbone, plugin = registry.backbone(protocol.backbone, made.reading())
        if network is not None:
            return Released(*start, protocol, backbone, plugin.digest(), network)
        together = TrainedTogether if self.data.options.devices > 1 else Trained
        kind = together if protocol.recipe.epochs else Given
        return kind(*start, protocol, backbone, plugin.digest())

    def _network(self, request: RunRequest, protocol: Protocol) -> NetworkFile | None:
        """Return the network that is to be taken as it is, if one is, held against the request."""
        options = self.data.options
        if options.network is None:
            return None
        asked = (protocol.name, request.representation, request.representation_seed)
        if asked not in self._networks:
            self._networks[asked] = find_network(
                str(options.network), request, protocol, self.data.registry
            )
        check_fits(self._networks[asked], request, protocol, options.precision)
        return self._networks[asked]


def check_start(origin: Origin) -> None:
    """Refuse now what could not be made from what an origin starts from.

    Published weights that a library keeps are fetched for it.

    Raises:
        DataError: weights are damaged, or do not fit the network.
        UsageError: the network cannot be built.
    """
    if isinstance(origin, FromFile):  # there is no network
        return
    start = origin.pretraining if isinstance(origin, Trained) else Pretraining(NONE)
    backbone = origin.backbone
    _start(type(backbone), backbone.variant, backbone.reading, start)


@cache  # what one plan starts from, many do
def _start(kind: type[Backbone], variant: str, reading: Reading, start: Pretraining) -> None:
    backbone = kind(variant, reading)
    pretrained_tensors(backbone.fresh(seed=0), backbone, start)


def _untrained(request: RunRequest, protocol: Protocol) -> Protocol:
    """Return the protocol without base training, for a representation that trains nothing."""
    if request.overrides.get("epochs"):
        raise UsageError(
            f"representation {request.representation!r} trains nothing as it is set, so that "
            f"epochs = {request.overrides['epochs']} has no meaning; leave it away, or let it train"
        )
    return protocol.override(epochs=0)
