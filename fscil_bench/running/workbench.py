"""From a request to a stored run: resolves names, shares what can be shared, runs what is new."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from fscil_bench.data.lists import index_of, shots_from_lists
from fscil_bench.data.pixels import Images
from fscil_bench.data.reader import Dataset
from fscil_bench.errors import FscilError, UsageError, nearest
from fscil_bench.method import Method, MethodContext, Network, Terms
from fscil_bench.options import Options
from fscil_bench.params import params_dict, parse_params, published_params, refuse_unstorable
from fscil_bench.plugins.digest import engine_digest
from fscil_bench.plugins.registry import Plugin, Registry, load_registry
from fscil_bench.progress import Progress, Silent
from fscil_bench.protocol import ImageSpec, Protocol
from fscil_bench.representation import Representation, TrainedRepresentation
from fscil_bench.request import RunRequest
from fscil_bench.running.costs import Costs
from fscil_bench.running.datasets import Datasets
from fscil_bench.running.feature_runs import TOLD_BY, unlisted_shots
from fscil_bench.running.origins import Origin, Origins, check_start
from fscil_bench.running.pseudo import pseudo_incremental
from fscil_bench.running.runner import named, run_sessions
from fscil_bench.running.scores import recorded
from fscil_bench.running.sessions import (
    LISTED,
    OUTLIER,
    SPLITS,
    Assignment,
    CanonicalShots,
    SessionMaker,
    canonical_shots,
    check_listed_sessions,
    draw_outliers,
    draw_shots,
    hold_out,
    outlier_fraction,
    read_canonical,
)
from fscil_bench.seeding import Randomness
from fscil_bench.spec import RepresentationSpec, RunSpec, Views, digest_of
from fscil_bench.store.files import now
from fscil_bench.store.locks import locked
from fscil_bench.store.runs import RunRecord, Store, StoredRun
from fscil_bench.store.tensors import FileCheckpoint, load_tensors, save_tensors, stored_digest
from fscil_bench.training.augment import augment, central, network_input, resized_crops
from fscil_bench.training.compute import (
    autocast,
    check_precision,
    environment,
    resolve_device,
    settle_threads,
)
from fscil_bench.training.features import (
    Features,
    FeatureSource,
    check_views,
    has_features,
    is_begun,
    weights_file,
)
from fscil_bench.training.loop import input_transform
from fscil_bench.training.weights import NONE


@dataclass(frozen=True)
class Plan:
    """A request resolved: the specification with the live objects that it names.

    `parameters` says how the method's parameters came about.
    """

    spec: RunSpec
    method: type[Method]
    params: Any
    representation: Representation
    origin: Origin
    dataset: Dataset
    table: CanonicalShots | None
    parameters: str

    @property
    def title(self) -> str:
        """Name the run in a line."""
        return f"{self.spec.method} on {self.spec.protocol.name}, seed {self.spec.seed}"

    @property
    def final_class_count(self) -> int | None:
        """The number of classes at the end, for a method that declares to need it."""
        needed = self.method.needs.final_class_count
        return self.spec.protocol.classes_used if needed else None


class Workbench:
    """Plans and executes runs over one store; images, networks and features are shared."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        progress: Progress,
        options: Options | None = None,
    ) -> None:
        self.store, self.registry, self.progress = store, registry, progress
        self.options = options or Options()
        self.device = resolve_device(self.options.device)
        check_precision(self.options.precision)
        told = "" if self.options.threads is None else settle_threads(self.options.threads)
        if told:
            self.progress.say(told)
        self.data = Datasets(store, registry, progress, self.options)
        self._origins = Origins(self.data, self.device)
        self._trained: dict[str, TrainedRepresentation] = {}
        self._features: dict[tuple[str, str, str], Features] = {}
        self._known: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._nonnegative: dict[tuple[str, str], bool] = {}
        self._learnt: set[str] = set()

    @classmethod
    def open(cls, options: Options, progress: Progress | None = None) -> Workbench:
        """Return a workbench on the store and with the plug-ins that the options name."""
        registry = load_registry(options.plugin_files)
        return cls(Store.of(options), registry, progress or Silent(), options)

    def plan(self, request: RunRequest) -> Plan:
        """Resolve a request; reads (and the first time decodes) the data, whose content counts.

        Raises:
            UsageError: an unknown name, parameter or split, or the network cannot be built.
            DataError: the data are missing, damaged or too few, or weights do not fit.
        """
        method = self.registry.get("method", request.method)
        brought = self.registry.get("representation", request.representation)
        protocol, folder = self.registry.protocol(request.protocol)
        if "name" in request.overrides:
            raise UsageError(
                f"protocol {protocol.name!r}: its name cannot be overridden; write a TOML file "
                f"with a name of its own that inherits {protocol.name!r}"
            )
        protocol = protocol.override(**request.overrides)
        params, parameters = _resolved(method, protocol, request.params, request.chosen)
        brought_params, _ = _resolved(brought, protocol, request.representation_params, None)
        with named(brought.value, "when it was made"):
            made = brought.value(brought_params)
        origin = self._origins.of(request, protocol, folder, made, params)
        protocol = pseudo_incremental(origin.protocol) if request.pseudo else origin.protocol
        needs = method.value.needs
        check_views(f"method {method.name!r}", (*needs.features, *needs.base_views))
        _check_extras(method.value, brought.value)
        views = _checked_reading(method.value, request.views)
        drawn = request.index_list is not None or (request.split or protocol.split) != "canonical"
        listed = None if drawn else read_canonical(protocol, folder)
        dataset = origin.load(protocol, folder, listed)
        terms = _terms(protocol, dataset, origin.backbone.dim)
        with named(method.value, "checking its parameters"):
            method.value.check(params, terms)
        split, table = self._split(request, protocol, dataset, listed)
        spec = RunSpec(
            method=method.name,
            params=params_dict(params),
            protocol=protocol,
            representation=origin.spec(brought, brought_params, protocol, dataset),
            split=split,
            shots=table.digest if table else None,
            seed=request.seed,
            views=views,
            code=method.digest(),
            engine=engine_digest(*RUN, type(origin).make),
        )
        refuse_unstorable(f"protocol {protocol.name!r}:", protocol.model_dump())
        if not is_begun(self.store, spec.representation.key):
            with named(brought.value, "in base training"):
                check_start(origin)
        return Plan(spec, method.value, params, made, origin, dataset, table, parameters)

    def run(self, plan: Plan, force: bool = False, artifacts: bool = False) -> StoredRun:
        """Return the stored run of a plan, made now if it is not there (or if `force`)."""
        found = None if force else self._found(plan, artifacts)
        if found is not None:
            return found
        method, maker, pretrain_seconds = self.begin(plan)
        with self._alone(f"run-{plan.spec.key}"):
            found = None if force else self._found(plan, artifacts)  # made while this one waited
            artifacts = artifacts or (not force and self.store.has_artifacts(plan.spec))
            return found or self._run(plan, method, maker, pretrain_seconds, artifacts)

    def _found(self, plan: Plan, artifacts: bool) -> StoredRun | None:
        """Return the stored run of a plan, unless it lacks the arrays that are asked for."""
        found = self.store.find(plan.spec)
        return found if found is not None and (not artifacts or found.artifacts()) else None

    def _run(
        self, plan: Plan, method: Method, maker: SessionMaker, pretrain_seconds: float, arrays: bool
    ) -> StoredRun:
        if arrays:
            method = recorded(method, plan.spec.protocol.base_classes)
        stopped = self._stopped(plan)
        costs = Costs(self.device, stopped)
        outcome = run_sessions(method, maker, arrays, self.progress, None if arrays else costs)
        record = RunRecord(
            key=plan.spec.key,
            spec=plan.spec,
            class_names=plan.dataset.class_names[: plan.spec.protocol.classes_used],
            sessions=outcome.sessions,
            pretrain_seconds=pretrain_seconds,
            notes=outcome.notes,
            representation_log=self.trained(plan).log,
            **self.known(plan) | costs.told(),
        )
        targets = plan.dataset.test.labels
        stored = self.store.write(record, outcome.predictions, targets, outcome.artifacts)
        stopped.remove()
        return stored

    def _stopped(self, plan: Plan) -> FileCheckpoint:
        # Folders of results that hold other weights of one specification may share a cache.
        spec = plan.spec
        weights = stored_digest(weights_file(self.store, spec.representation.key))
        file = self.store.cache_folder("sessions", digest_of([spec.key, weights])) / "checkpoint.pt"
        title = f"{spec.method} on {spec.protocol.name}, seed {spec.seed}"
        return FileCheckpoint(file, title, self.progress.say)

    def known(self, plan: Plan) -> dict[str, Any]:
        """Return what is recorded of any work of a plan that is finished now."""
        used = plan.spec.protocol.classes_used
        return {
            "train_images": _spread(plan.dataset.train.labels, used),
            "test_images": _spread(plan.dataset.test.labels, used),
            "flags": _flags(plan),
            "parameters": plan.parameters,
            "network": self.store.network(plan.spec.representation.key),
            "environment": environment(self.device),
            "created": now(),
        }

    def begin(self, plan: Plan) -> tuple[Method, SessionMaker, float]:
        """Return the same as `start`; what several processes want to make, one of them makes."""
        self.prepare(plan)
        spec = plan.spec
        learnt = spec.model_copy(update={"seed": 0}).key
        if learnt in self._learnt or not plan.method.has_pretraining():
            return self.start(plan)
        with self._alone(f"learnt-{spec.representation.key}-{spec.method}"):
            started = self.start(plan)
        self._learnt.add(learnt)
        return started

    def prepare(self, plan: Plan) -> None:
        """Make a plan's network and the features that its method reads, unless they are stored."""
        trained, needs = self.network(plan), plan.method.needs
        if plan.dataset.features is not None:
            return
        for view in dict.fromkeys((*needs.features, *needs.base_views)):
            if (trained.key, view, plan.spec.views) in self._features:
                continue
            for half in ("train", "test") if view in needs.features else ("train",):
                self.extract(plan, trained, view, half, plan.spec.views)

    def network(self, plan: Plan) -> TrainedRepresentation:
        """Return the same as `trained`, while other processes that want it wait."""
        key = plan.spec.representation.key
        if key in self._trained or weights_file(self.store, key).exists():
            return self.trained(plan)
        self.store.check_writable()
        with self._alone(f"network-{key}"):
            self._announce(plan.spec.representation)
            return self.trained(plan)

    def _announce(self, spec: RepresentationSpec) -> None:
        """Say that a network is to be trained, which takes most of a first run's time."""
        file, epochs = weights_file(self.store, spec.key), spec.recipe.epochs
        if epochs and not spec.network and not file.exists():
            when = "goes on" if is_begun(self.store, spec.key) else "comes first"
            self.progress.say(
                f"base training {when}: {spec.name} on {spec.dataset}, {epochs} "
                f"epoch{'s' * (epochs != 1)}, once for all methods and seeds; kept in {file.parent}"
            )

    def extract(
        self, plan: Plan, trained: TrainedRepresentation, view: str, half: str, views: Views
    ) -> None:
        """Compute one half of a plan's features in one view, likewise, unless it is stored."""
        if has_features(self.store, trained.key, view, half, views):
            return
        self.store.check_writable()
        array = plan.dataset.train if half == "train" else plan.dataset.test
        with self._alone(f"view-{trained.key}-{view}-{half}"):
            self._source(plan, trained).load_half(array, half, view, views)

    def _alone(self, name: str) -> AbstractContextManager[None]:
        return locked(self.store.lock(name), self.progress.say)

    def start(self, plan: Plan) -> tuple[Method, SessionMaker, float]:
        """Return a plan's method before its base session, what hands it samples, and the seconds.

        What it learns from base data alone, which took these seconds, it has been given.
        """
        self.store.check_writable()
        trained, needs = self.trained(plan), plan.method.needs
        source = self._source(plan, trained)
        base_views = {
            view: source.load_half(plan.dataset.train, "train", view, plan.spec.views)
            for view in needs.base_views
        }
        maker = SessionMaker(
            plan.spec.protocol,
            plan.dataset,
            self.features(plan, trained),
            self._assign(plan, trained),
            needs,
            base_views,
        )
        context = self._context(plan, trained)
        with named(plan.method, "when it was made"):
            method = plan.method(plan.params, context)
        return method, maker, self._pretrain(plan, method, maker)

    def _split(
        self,
        request: RunRequest,
        protocol: Protocol,
        dataset: Dataset,
        listed: CanonicalShots | None,
    ) -> tuple[str, CanonicalShots | None]:
        """Return the split's name and the table of its shots, which are known to be there.

        They need not be in a file of features that is the data set: then shots are drawn, unless
        the published ones are asked for.
        """
        split, table = _split(request, protocol, dataset, listed)
        if table is not None:
            try:
                canonical_shots(table, protocol, dataset)  # known now, and not after base training
            except UsageError as error:
                if dataset.matching != "file" or request.index_list:
                    raise
                told = unlisted_shots(table, protocol, dataset)
                if request.split:
                    raise UsageError(f"{told}; {TOLD_BY}") if told else error from error
                self.data.say_once(f"{told or error}; shots are drawn, as --split seeded does")
                return "seeded", None
        return split, table

    def trained(self, plan: Plan) -> TrainedRepresentation:
        """Return the plan's representation, trained now if it is not stored."""
        spec = plan.spec.representation
        if spec.key not in self._trained:
            with named(plan.representation, "in base training"):
                made, known = plan.origin.make(plan.spec, plan.dataset)
            self._trained[spec.key] = made
            if known is not None:
                self._known[spec.key] = known
        return self._trained[spec.key]

    def features(self, plan: Plan, trained: TrainedRepresentation) -> dict[str, Features]:
        """Return the features that a plan's method reads, by view; computed if not stored."""
        views = plan.spec.views
        return {name: self._view(plan, trained, name, views) for name in plan.method.needs.features}

    def _view(
        self, plan: Plan, trained: TrainedRepresentation, view: str, views: Views
    ) -> Features:
        if plan.dataset.features is not None:
            return Features(*plan.dataset.features)
        key = (trained.key, view, views)
        if key not in self._features:
            self._features[key] = self._source(plan, trained).load(plan.dataset, view, views)
        return self._features[key]

    def _source(self, plan: Plan, trained: TrainedRepresentation) -> FeatureSource:
        spec = plan.spec.representation
        known = self._known.get(spec.key)
        return FeatureSource(trained, spec, self.store, self.device, self.progress, known)

    def _assign(self, plan: Plan, trained: TrainedRepresentation) -> Assignment:
        protocol, dataset, seed = plan.spec.protocol, plan.dataset, plan.spec.seed
        base, heldout = hold_out(dataset, protocol, plan.spec.representation.seed)
        fraction = outlier_fraction(plan.spec.split)
        if fraction is not None:
            features = self._view(plan, trained, "plain", "plain").train
            shots = draw_outliers(dataset, protocol, features, fraction, seed)
        elif plan.table is not None:
            shots = canonical_shots(plan.table, protocol, dataset)
        else:
            shots = draw_shots(dataset, protocol, seed)
        return Assignment(base, heldout, shots)

    def _context(self, plan: Plan, trained: TrainedRepresentation) -> MethodContext:
        spec, needs = plan.spec, plan.method.needs
        return MethodContext(
            feature_dim=trained.classifier.shape[1],
            random=Randomness(("method", spec.method, spec.split, spec.seed)),
            base_random=Randomness(("pretrain", spec.method, spec.representation.seed)),
            device=self.device,
            extras={name: trained.extras[name].clone() for name in needs.extras},
            network=self._network(plan, trained) if needs.images else None,
            final_class_count=plan.final_class_count,
            nonnegative=self._is_nonnegative(plan, trained) if "plain" in needs.features else True,
            checkpoint=self._checkpoint(plan) if plan.method.has_pretraining() else None,
        )

    def _checkpoint(self, plan: Plan) -> FileCheckpoint:
        file = learnt_file(self.store, plan).with_name("checkpoint.pt")
        title = f"{plan.spec.method}: learning from base data"
        return FileCheckpoint(file, title, self.progress.say)

    def _is_nonnegative(self, plan: Plan, trained: TrainedRepresentation) -> bool:
        key = (trained.key, plan.spec.views)
        if key not in self._nonnegative:
            features = self._view(plan, trained, "plain", plan.spec.views).train
            base = plan.dataset.train.labels < plan.spec.protocol.base_classes
            self._nonnegative[key] = bool((features[base] >= 0).all())
        return self._nonnegative[key]

    def _network(self, plan: Plan, trained: TrainedRepresentation) -> Network:
        images, operations = plan.spec.protocol.images, plan.spec.protocol.recipe.augment
        size, crops = images.size, "resized_crop" in operations
        transform, device = input_transform(plan.spec.representation), self.device
        precision = plan.spec.representation.precision

        def train_pixels(pixels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            cut = resized_crops(list(pixels), size, generator) if crops else central(pixels, size)
            return network_input(augment(cut, operations, generator), transform, device)

        def test_pixels(pixels: torch.Tensor) -> torch.Tensor:
            return network_input(central(pixels, size), transform, device)

        def at_precision() -> AbstractContextManager[Any]:
            return autocast(precision, device)

        backbone = copy.deepcopy(trained.backbone).requires_grad_(True)
        classifier = trained.classifier.clone()
        return Network(backbone, classifier, trained.scale, train_pixels, test_pixels, at_precision)

    def _pretrain(self, plan: Plan, method: Method, maker: SessionMaker) -> float:
        """Give the method what it learns from base data alone; return the seconds that took."""
        if not plan.method.has_pretraining():
            return 0.0
        path = learnt_file(self.store, plan)
        if not path.exists():
            started = time.perf_counter()
            base = maker.session(0)
            with (
                self.progress.task(f"{method.name}: learning from base data", 1.0) as task,
                named(method, "learning from base data"),
            ):
                tensors = method.pretrain(base, task.update)
            if not isinstance(tensors, Mapping):
                raise FscilError(
                    f"method {method.name!r}: pretrain returned {type(tensors).__name__} instead "
                    "of named tensors"
                )
            save_tensors(path, tensors, {"seconds": time.perf_counter() - started})
            self._checkpoint(plan).remove()
        tensors, meta = load_tensors(path)
        with named(method, "taking what it learnt from base data"):
            method.load_pretrained(tensors)
        return float(meta["seconds"])


def learnt_file(store: Store, plan: Plan) -> Path:
    """Return where lies what a plan's method learns from base data, on a network that is there.

    Raises:
        StoreError: the network is missing or damaged.
    """
    spec = plan.spec
    params = {name: spec.params[name] for name in plan.method.pretrain_params}
    key = spec.representation.key  # tells the data and the seed, and the weights what trained
    weights, known = stored_digest(weights_file(store, key)), plan.final_class_count
    parts = [key, weights, spec.method, spec.code, spec.engine, spec.views, known, params]
    return store.cache_folder("pretrained", digest_of(parts)) / "tensors.safetensors"


RUN = (Workbench.start, run_sessions, Images, ImageSpec, Protocol)
"""Where the engine's digest of a run starts, beside how its origin is made: what takes a method
through the sessions, and the data types that are handed over.
"""


def _resolved(
    plugin: Plugin, protocol: Protocol, settings: Mapping[str, Any], chosen: str | None
) -> tuple[Any, str]:
    """Return a plug-in's parameters for a protocol, and how they came about.

    Its defaults, what its paper states for the protocol over them, the user's settings over both.
    """
    schema, owner = plugin.value.Params, f"{plugin.kind} {plugin.name!r}"
    stated = published_params(plugin.value, protocol.published_as)
    params = parse_params(owner, schema, {**stated, **settings})
    if chosen is not None:
        return params, chosen
    if params == parse_params(owner, schema, stated):
        return params, f"published for {protocol.name}" if stated else "the method's defaults"
    return params, "set by hand"


def _checked_reading(method: type[Method], wanted: str) -> Views:
    """Return how features are to be read.

    Raises:
        UsageError: an unknown way, or averaged features for a method that reads none.
    """
    known: dict[str, Views] = {name: name for name in get_args(Views)}
    if wanted not in known:
        raise UsageError(f"unknown views {wanted!r}; {nearest(wanted, known)}")
    if wanted != "plain" and not method.needs.features:
        raise UsageError(
            f"views = {wanted}: method {method.name!r} works on images; averaged features are for "
            "methods on a frozen backbone"
        )
    return known[wanted]


def _split(
    request: RunRequest, protocol: Protocol, dataset: Dataset, listed: CanonicalShots | None
) -> tuple[str, CanonicalShots | None]:
    """Return the split's name and the table of its shots, where they are listed."""
    if request.index_list is not None:
        if request.split not in (None, LISTED):
            raise UsageError("give either --split or --index-list, not both")
        rows = shots_from_lists(request.index_list, index_of(dataset), protocol.shot)
        check_listed_sessions(request.index_list, rows, protocol, dataset)
        return LISTED, CanonicalShots(request.index_list, rows)
    name = request.split or protocol.split
    fraction = outlier_fraction(name)
    if fraction is not None:
        return f"{OUTLIER}:{fraction:g}", None  # however it was written
    if name not in SPLITS:
        raise UsageError(f"unknown split {name!r}; known: {', '.join(SPLITS)}, outlier:Q")
    return name, listed


def _check_extras(method: type[Method], representation: type[Representation]) -> None:
    missing = set(method.needs.extras) - set(representation.extras)
    if missing:
        raise UsageError(
            f"method {method.name!r} needs {', '.join(sorted(missing))} from its representation, "
            f"which {representation.name!r} does not bring"
        )


def _terms(protocol: Protocol, dataset: Dataset, dim: int) -> Terms:
    """Return what a method's parameters are checked against."""
    base = protocol.session_classes(0)
    images = min(len(dataset.train.of_class(label)) for label in base)
    fraction = protocol.recipe.holdout
    held = min(images - 1, max(1, round(fraction * images))) if fraction else 0
    return Terms(
        feature_dim=dim,
        base_classes=len(base),
        classes=protocol.classes_used,
        shot=protocol.shot,
        base_images=images - held,
        heldout=held > 0,
    )


def _spread(labels: np.ndarray, classes: int) -> tuple[int, int]:
    """Return the fewest and the most images of one of the first `classes` classes."""
    counts = np.bincount(labels, minlength=classes)[:classes]
    return int(counts.min()), int(counts.max())


def _flags(plan: Plan) -> tuple[str, ...]:
    """Return what a table must say beside the row."""
    found = []
    if plan.method.needs.final_class_count:
        found.append("knows the final class count")
    if plan.representation.final_class_count:
        found.append("representation sized by the final class count")
    if plan.spec.views == "flip":
        found.append("test-time views: image and mirror image averaged")
    found += plan.origin.flags(plan.spec.protocol, plan.dataset)
    if plan.dataset.unofficial:
        found.append(f"unofficial data ({plan.dataset.unofficial})")
    if plan.dataset.skipped:
        found.append(f"{plan.dataset.skipped} broken images skipped")
    start = plan.spec.representation.pretraining
    if plan.spec.protocol.pretraining == "imagenet" and start == NONE:
        found.append("without the protocol's ImageNet weights")
    return tuple(found)
