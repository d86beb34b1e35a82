"""Networks trained elsewhere: their files, which come along, how one is taken and written.

A file holds the backbone (`backbone.*`), the base classifier's rows (`classifier`), the named
tensors of the representation (`extras.*`), and a card that says how they came about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fscil_bench.backbone import Backbone
from fscil_bench.data.reader import Dataset, file_digest
from fscil_bench.errors import DataError, StoreError, UsageError, nearest, no_file, some
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol, Recipe
from fscil_bench.representation import TrainedRepresentation
from fscil_bench.request import RunRequest
from fscil_bench.seeding import Randomness
from fscil_bench.spec import RepresentationSpec, digest_of
from fscil_bench.store.files import now
from fscil_bench.store.runs import Count, RunRecord, Store, told_flag
from fscil_bench.store.tensors import load_tensors, save_tensors
from fscil_bench.training.weights import fit

PACKAGED = Path(__file__).parents[1] / "networks"
SUFFIX = ".safetensors"
RELEASED = "released"
"""What --network calls the one that comes along for a protocol, a representation and its seed."""
BACKBONE, CLASSIFIER, EXTRAS = "backbone.", "classifier", "extras."
COPY_FLAGS = ("unofficial data", "broken images skipped")
"""In what a run is flagged with: that its copy of the data is not the published one."""


class NetworkCard(BaseModel):
    """What a file says of its network.

    Attributes:
        title: what tables call it.
        license: on what terms it may be used; empty where its maker does not say.
        protocol: name of the protocol that it was trained on.
        classes: names of its base classes, in order.
        train_images: (fewest, most) training images of a class in the data used.
        copy_flags: what a table says of that copy of the data, if it is not the published one.
        spec: what decided the network.
        scale: the factor on the cosine logits during training.
        weights: digest of the weights as they were stored where they were trained.
        log: the training record.
        environment: machine and versions that they were trained with.
        created: when the file was written.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1] = 1
    title: Annotated[str, Field(pattern=r"^\S([^\n]*\S)?$")]
    license: str = ""
    protocol: str
    classes: tuple[str, ...]
    train_images: tuple[Count, Count]
    copy_flags: tuple[str, ...] = ()
    spec: RepresentationSpec
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    weights: str
    log: dict[str, Any]
    environment: dict[str, Any]
    created: str


@dataclass(frozen=True)
class NetworkFile:
    """A network in a file that was found whole; `digest` is the file's SHA-256."""

    path: Path
    digest: str
    card: NetworkCard

    @property
    def name(self) -> str:
        """What --network calls it, if it comes along."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def label(self) -> str:
        """Title and digest, as keys have them."""
        return f"{self.card.title} (sha256 {self.digest[:12]})"

    def flags(self, fingerprint: str) -> tuple[str, ...]:
        """Return what a table must say beside a row on it, on data of that fingerprint."""
        told = f"released network: {self.card.title}, no base training here"
        if fingerprint == self.card.spec.data_fingerprint:
            return (told,)  # what there is to say of the copy, the row says anyway
        copy = "".join(f", {told_flag(flag)}" for flag in self.card.copy_flags)
        return told, f"network trained on another copy of the data{copy}"

    def representation(self, asked: RepresentationSpec) -> RepresentationSpec:
        """Return the specification of this network on the data, and by the engine, of another.

        Its digest decides, and not the code that trained it.
        """
        here = {n: getattr(asked, n) for n in ("data_fingerprint", "engine", "backbone_code")}
        return self.card.spec.model_copy(update={**here, "network": self.label, "code": ""})


def packaged_networks(registry: Registry) -> list[NetworkFile]:
    """Return the networks that come along, by name."""
    return [read_network(path, registry) for path in _packaged()]


def packaged_names() -> Mapping[str, str]:
    """Return the names of the networks that come along, by the labels that keys have of them."""
    return {_label(path): path.name.removesuffix(SUFFIX) for path in _packaged()}


@cache  # reports ask for it run by run
def _label(path: Path) -> str:
    return NetworkFile(path, file_digest(path), _read(path)[0]).label


def find_network(
    choice: str, request: RunRequest, protocol: Protocol, registry: Registry
) -> NetworkFile:
    """Return the network that --network names: one that comes along, `released`, or a file.

    Raises:
        DataError: the file is damaged, or holds no such network.
        UsageError: there is none of that name, or none for the protocol and representation.
    """
    known = {path.name.removesuffix(SUFFIX): path for path in _packaged()}
    if choice == RELEASED:
        asked = (protocol.name, request.representation, request.representation_seed)
        for network in packaged_networks(registry):
            card = network.card
            if (card.protocol, card.spec.name, card.spec.seed) == asked:
                return network
        raise UsageError(
            f"--network {RELEASED}: none comes along for protocol {asked[0]!r}, representation "
            f"{asked[1]!r}, representation seed {asked[2]}; there are: "
            f"{some(list(known)) or 'none'}; without --network one is trained"
        )
    if choice in known:
        return read_network(known[choice], registry)
    if Path(choice).is_file():
        return read_network(Path(choice), registry)
    if choice.endswith(SUFFIX) or Path(choice).name != choice:
        raise UsageError(f"--network {choice}: {no_file(choice)}")
    near = nearest(choice, [RELEASED, *known])
    told = f"--network {choice}: {no_file(choice)}, and none of that name comes along; {near}"
    raise UsageError(told)


def read_network(path: Path, registry: Registry) -> NetworkFile:
    """Read a file that `export_network` wrote, and hold it against its own card.

    Raises:
        DataError: it is damaged, no such file, or its tensors are not those of its backbone.
    """
    card, tensors = _read(path)
    backbone, _ = registry.backbone(card.spec.backbone)
    fit(backbone.fresh(seed=0), path)
    expected = (len(card.classes), backbone.dim)
    rows = tensors.get(CLASSIFIER, torch.empty(0))
    if tuple(rows.shape) != expected or card.spec.base_classes != len(card.classes):
        raise DataError(
            f"{path}: its classifier has the shape {tuple(rows.shape)}, and its card names "
            f"{len(card.classes)} of {card.spec.base_classes} base classes; expected are rows "
            f"{expected}"
        )
    broken = [k for k, v in tensors.items() if v.is_floating_point() and not v.isfinite().all()]
    if broken:
        raise DataError(f"{path}: the values of {broken[0]!r} are not finite")
    return NetworkFile(path, file_digest(path), card)


def check_fits(
    network: NetworkFile, request: RunRequest, protocol: Protocol, precision: str
) -> None:
    """Refuse a request that a network cannot answer as it is.

    Raises:
        UsageError: something would be trained otherwise than it was; the reason is given.
    """
    spec, path = network.card.spec, network.path
    if request.pseudo:
        raise UsageError(
            f"{path}: parameters are chosen in front of a network that has not seen the classes "
            "that play new ones, and this one has; leave --network out, and one is trained"
        )
    changed = [name for name in request.overrides if name in Recipe.model_fields]
    changed += [f"representation's {name}" for name in request.representation_params]
    if changed:
        raise UsageError(f"{path}: is trained already; its {', '.join(changed)} cannot be set")
    if precision not in ("auto", spec.precision):
        raise UsageError(f"{path}: was trained in {spec.precision}; leave --precision out")
    words = (("representation", spec.name), ("representation_seed", spec.seed))
    for name, own in words:
        if getattr(request, name) != own:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(
                f"{path}: is of {option[2:]} {own}, {getattr(request, name)} was asked for; "
                f"give {option} {own}"
            )
    names = ("dataset", "base_classes", "backbone", "images")
    for name in names:
        own, here = getattr(spec, name), getattr(protocol, name)
        if own != here:
            raise UsageError(
                f"{path}: is no network for protocol {protocol.name!r} but for "
                f"{network.card.protocol!r}: {name} is {own}, here {here}"
            )
    if network.card.protocol != protocol.name and spec.recipe != protocol.recipe:
        raise UsageError(
            f"{path}: was trained by the recipe of protocol {network.card.protocol!r}, which is "
            f"not that of {protocol.name!r}; give --protocol {network.card.protocol}"
        )


def check_classes(network: NetworkFile, dataset: Dataset) -> None:
    """Refuse a network whose base classes are not the first of a data set, in its order.

    Raises:
        DataError: they are not, or which images were held out of another copy cannot be told.
    """
    card = network.card
    for number, (own, here) in enumerate(zip(card.classes, dataset.class_names, strict=False)):
        if own != here:
            raise DataError(
                f"{network.path}: its base class {number} is {own!r}, here it is {here!r}: it is "
                "of other classes, or of another order of them"
            )
    if card.spec.recipe.holdout and card.spec.data_fingerprint != dataset.fingerprint:
        raise DataError(
            f"{network.path}: was trained with images held out of another copy of the data; which "
            "ones they are here is not known"
        )


def taken_network(
    spec: RepresentationSpec,
    network: NetworkFile,
    backbone: Backbone,
    device: torch.device,
    folder: Path,
) -> TrainedRepresentation:
    """Return a file's network as a representation, kept in `folder` as one trained here is.

    Raises:
        StoreError: a file in `folder` is damaged or cannot be written.
    """
    kept = folder / "weights.safetensors"
    if not kept.exists():
        save_tensors(kept, *load_tensors(network.path))
    tensors, _ = load_tensors(kept)
    made = backbone.fresh(seed=0)
    made.load_state_dict(_part(tensors, BACKBONE))
    card = network.card
    return TrainedRepresentation(
        key=spec.key,
        backbone=made.to(device).eval().requires_grad_(False),
        classifier=tensors[CLASSIFIER],
        scale=card.scale,
        extras=_part(tensors, EXTRAS),
        log={**card.log, "network": network.label, "trained_with": card.environment},
    )


def stored_networks(store: Store) -> dict[str, RunRecord]:
    """Return the networks that were trained here: key -> the newest run's record of it.

    One is left out whose weights are not those of the run any more, or that was itself taken from
    a file, or trained to choose parameters.
    """
    found: dict[str, RunRecord] = {}
    runs, _ = store.runs()
    for record in (run.record for run in runs):
        spec = record.spec.representation
        own = spec.recipe.epochs and not spec.network
        pseudo = record.spec.protocol.test_from_train is not None
        if own and not pseudo and store.network(spec.key) == record.network != "":
            found[spec.key] = record
    return found


def export_network(
    store: Store, registry: Registry, record: RunRecord, path: Path, title: str, licence: str
) -> NetworkFile:
    """Write the network of a run to a file that `--network` takes.

    Raises:
        StoreError: its weights are damaged, or the file cannot be written.
        UsageError: its representation is not registered.
    """
    spec = record.spec.representation
    plugin = registry.get("representation", spec.name)
    params = parse_params(f"representation {spec.name!r}", plugin.value.Params, spec.params)
    made, generator = plugin.value(params), Randomness(("export",)).torch("head")
    backbone, _ = registry.backbone(spec.backbone)
    head = made.build_head(backbone.dim, spec.base_classes, generator)
    weights, log = load_tensors(store.representation_folder(spec.key) / "weights.safetensors")
    head.load_state_dict(_part(weights, "head."))
    card = NetworkCard(
        title=title or f"{record.spec.protocol.name} {spec.name}",
        license=licence,
        protocol=record.spec.protocol.name,
        classes=record.class_names[: spec.base_classes],
        train_images=record.train_images,
        copy_flags=tuple(f for f in record.flags if any(each in f for each in COPY_FLAGS)),
        spec=spec,
        scale=made.scale(),
        weights=record.network,
        log=log,
        environment=record.environment,
        created=now(),
    )
    tensors = {k: v for k, v in weights.items() if k.startswith(BACKBONE)}
    tensors[CLASSIFIER] = made.classifier(head).float()
    tensors |= {f"{EXTRAS}{name}": v for name, v in made.extra_tensors(head).items()}
    content = card.model_dump(mode="json")
    save_tensors(path, tensors, {"card": content, "card_digest": digest_of(content)})
    return read_network(path, registry)


def _packaged() -> list[Path]:
    return sorted(PACKAGED.glob(f"*{SUFFIX}"))


def _part(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _read(path: Path) -> tuple[NetworkCard, dict[str, torch.Tensor]]:
    """Return a file's card and tensors, both as they were written."""
    other = "take weights of other code with --weights FILE --epochs 0"
    try:
        tensors, meta = load_tensors(path)
    except StoreError as error:
        reason = error.__cause__ or "its tensors are not as they were written"
        if isinstance(reason, KeyError):
            reason = "it has no card that says how its network was trained"
        raise DataError(
            f"{path}: damaged, or none that `fscil-bench networks export` wrote ({reason}); {other}"
        ) from error
    if not isinstance(meta, dict) or "card" not in meta:
        raise DataError(
            f"{path}: has no card that says how its network was trained; `fscil-bench networks "
            f"export` writes one, or {other}"
        )
    if meta.get("card_digest") != digest_of(meta["card"]):
        raise DataError(f"{path}: damaged, its card is not as it was written")
    try:
        return NetworkCard.model_validate_json(json.dumps(meta["card"])), tensors
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(
            f"{path}: its card cannot be read: {'.'.join(map(str, first['loc']))}: {first['msg']}; "
            "if a newer version of fscil-bench wrote it, update this one"
        ) from error
