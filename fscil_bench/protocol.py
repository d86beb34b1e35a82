"""The protocol contract: what is trained on what, in which sessions; what a method sees of it."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fscil_bench.errors import UsageError, nearest, shown
from fscil_bench.params import plain, refuse_unstorable

if TYPE_CHECKING:
    import torch

PositiveInt = Annotated[int, Field(gt=0, le=1_000_000)]
NaturalInt = Annotated[int, Field(ge=0, le=1_000_000)]
FEATURES = "features"
"""What stands for data set, backbone and representation of features that come from a file."""
MOST = 1e38
"""What the weights' type can hold: a step of a larger rate is no number at all."""
Channels = tuple[float, float, float]
Augmentation = Literal[
    "crop",
    "resized_crop",
    "flip",
    "color_jitter",
    "grayscale",
    "autoaugment_cifar10",
    "autoaugment_imagenet",
    "cutout",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ImageSpec(_Frozen):
    """How an image becomes the backbone's input.

    `resize` is the length the shorter side is brought to; images are then stored whole, training
    may crop from all of them, and the test transform cuts out the central square of `size` pixels.
    Without it the central square of the image, at `size`, is all that is stored. `mean` and `std`
    are per channel, of values in [0, 1].
    """

    size: PositiveInt
    resize: PositiveInt | None = None
    mean: Channels
    std: Channels

    @property
    def stored(self) -> int:
        """Length of the shorter side of a stored image."""
        return self.resize or self.size

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.resize is not None and self.resize < self.size:
            raise ValueError(f"resize = {self.resize} is smaller than size = {self.size}")
        if min(self.std) <= 0:
            raise ValueError("std must be positive")
        return self


class Recipe(_Frozen):
    """How the backbone is trained on the base session (SGD with Nesterov momentum).

    `milestones` are the epochs at which a `step` schedule multiplies the rate by `gamma`.
    `checkpoint = "best"` keeps the epoch with the highest accuracy on `holdout`, a fraction of
    every base class's *training* images that the backbone is not trained on; test images never
    choose anything. With `epochs = 0` nothing is trained: the network is that of a file.
    """

    epochs: NaturalInt
    batch_size: PositiveInt = 128
    lr: Annotated[float, Field(gt=0, le=MOST)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0, le=MOST)] = 5e-4
    schedule: Literal["step", "cosine", "constant"] = "step"
    milestones: tuple[PositiveInt, ...] = ()
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.1
    augment: tuple[Augmentation, ...] = ("crop", "flip")
    checkpoint: Literal["last", "best"] = "last"
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def scaled_milestones(self, epochs: int) -> tuple[int, ...]:
        """Return the milestones at the same share of so many epochs, each at least 1."""
        if not epochs:
            return ()
        share = epochs / self.epochs if self.epochs else 1.0
        return tuple(dict.fromkeys(max(1, round(share * epoch)) for epoch in self.milestones))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.checkpoint == "best" and self.holdout == 0:
            raise ValueError('checkpoint = "best" needs holdout > 0 to choose on')
        if self.holdout and not self.epochs:
            raise ValueError(
                f"holdout = {self.holdout} has no meaning with epochs = 0: which images a network "
                "from a file was trained on is not known"
            )
        if self.schedule != "step" and self.milestones:
            raise ValueError(f'milestones have no effect with schedule = "{self.schedule}"')
        return self


class Protocol(_Frozen):
    """A data set cut into one base session and few-shot sessions; frozen data, no behaviour.

    `classes` is the number of classes the data set must offer, in the reader's order; the first
    `base_classes` are the base session's, then each session brings the next `way` classes with
    `shot` images each; `way = [3, 2, 1]` makes sessions of different sizes. `split` is
    the default choice of shots: `canonical` (a published list) or `seeded`. `canonical_shots` is
    the table of that list beside the protocol's file, and `canonical_rows` the protocol that its
    rows are written for, by default this one; a protocol that inherits a table and has no use for
    it writes `canonical_shots = ""`.
    `train_images` is the number of training images a class of the full data set
    has; a copy that has fewer is used, and every run and table says so. `class_order` is the
    data set's own, a seeded permutation of it, `seed:3`, or the order of a list beside the
    protocol's file, `list:FILE`, with the key of a class on each line; classes that it does not
    name are left out. `data` is where a user's own data lie, relative to the protocol's file; it
    is in no key and no record, the images' digest is; nor is the place of `canonical_shots`, whose
    rows' digest is. `classes_in` says which of its classes are in data that networks are
    pre-trained on, by the beginning of their names: `{ imagenet = "59 of 200 species" }`; flags
    quote it.
    `features` is a file of features, likewise: nothing is trained then, and data set, backbone,
    images and recipe may be left out, in which case the file is the data set.
    `reader_options` are passed on to the data set's reader. With `test_from_train` that fraction
    of every class's training images plays the test images, and the test half is never read.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    title: str
    dataset: str
    classes: PositiveInt
    base_classes: PositiveInt
    way: PositiveInt | tuple[PositiveInt, ...]
    shot: PositiveInt
    sessions: NaturalInt
    class_order: Annotated[str, Field(pattern=r"^(dataset|seed:(0|[1-9][0-9]{0,17})|list:.+)$")] = (
        "dataset"
    )
    split: Literal["canonical", "seeded"] = "seeded"
    canonical_shots: Annotated[str | None, Field(exclude=True)] = None
    canonical_rows: str | None = None
    train_images: PositiveInt | None = None
    data: Annotated[str | None, Field(exclude=True)] = None
    classes_in: Annotated[dict[str, str], Field(exclude=True)] = {}
    features: Annotated[str | None, Field(exclude=True)] = None
    reader_options: dict[str, int | float | str] = {}
    test_from_train: Annotated[float | None, Field(gt=0, lt=1)] = None
    backbone: str
    pretraining: Literal["none", "imagenet"] = "none"
    images: ImageSpec
    recipe: Recipe

    @model_validator(mode="after")
    def _check(self) -> Self:
        if isinstance(self.way, tuple) and len(self.way) != self.sessions:
            raise ValueError(
                f"way = {list(self.way)} names {len(self.way)} sessions, sessions = {self.sessions}"
            )
        if self.classes_used > self.classes:
            each = f"{self.way} × {self.sessions}"
            if isinstance(self.way, tuple):
                each = " + ".join(map(str, self.way))
            raise ValueError(
                f"base_classes + way × sessions = {self.base_classes} + {each} = "
                f"{self.classes_used} exceeds classes = {self.classes}"
            )
        return self

    @property
    def ways(self) -> tuple[int, ...]:
        """Return how many new classes each few-shot session brings."""
        return self.way if isinstance(self.way, tuple) else (self.way,) * self.sessions

    @property
    def way_text(self) -> str:
        """Return the way as tables show it: `5`, or `3, 2, 1`."""
        return str(self.way) if isinstance(self.way, int) else ", ".join(map(str, self.way))

    @property
    def published_as(self) -> tuple[str | None, ...]:
        """Return the names under which papers' parameters for it may be found."""
        return self.name, self.canonical_rows

    @property
    def classes_used(self) -> int:
        """Number of classes seen after the last session."""
        return self.base_classes + sum(self.ways)

    def session_classes(self, session: int) -> tuple[int, ...]:
        """Return the global ids of the classes new in `session` (0 is the base session)."""
        if session == 0:
            return tuple(range(self.base_classes))
        return tuple(range(self.classes_seen(session - 1), self.classes_seen(session)))

    def classes_seen(self, session: int) -> int:
        """Return how many classes have been seen once `session` is learnt."""
        return self.base_classes + sum(self.ways[:session])

    def override(self, /, **changes: Any) -> Protocol:
        """Return this protocol with top-level or recipe fields changed, validated anew.

        Where `way` or `base_classes` change and `sessions` is not given, there are as many
        sessions as the classes allow. Milestones keep their share of changed `epochs`, and with
        0 of them nothing is held out.

        Raises:
            UsageError: an unknown name, or a changed value does not fit.
        """
        # What a dump leaves out:
        excluded = ("data", "features", "canonical_shots", "classes_in")
        data = {**self.model_dump(), **{name: getattr(self, name) for name in excluded}}
        known = {**Protocol.model_fields, **Recipe.model_fields}
        for name in changes:
            if name not in known:
                raise UsageError(
                    f"protocol {self.name!r} has nothing called {name!r} to change; "
                    f"{nearest(name, known)} (all: {', '.join(sorted(known))})"
                )
        changes = {name: _plain(value) for name, value in changes.items()}
        refuse_unstorable(f"protocol {self.name!r}:", changes)
        self._check_counts(changes)
        changes |= self._sessions_left(changes)
        if "epochs" in changes and not {"milestones", "schedule"} & set(changes):
            changes["milestones"] = self.recipe.scaled_milestones(changes["epochs"])
        if changes.get("epochs") == 0:
            changes = {"holdout": 0.0, "checkpoint": "last", **changes}
        for name, value in changes.items():
            target = data["recipe"] if name in Recipe.model_fields else data
            target[name] = value
        try:
            return Protocol.model_validate(data)
        except ValidationError as error:
            raise UsageError(f"protocol {self.name!r}: {_first_problem(error)[1]}") from error

    def _check_counts(self, changes: Mapping[str, Any]) -> None:
        """Refuse what other fields cannot be computed from."""
        for name in ("classes", "base_classes", "sessions", "way", "epochs"):
            given = changes.get(name, 0)
            several = given if name == "way" and isinstance(given, tuple) else (given,)
            if not several or not all(type(each) is int for each in several):
                raise UsageError(
                    f"protocol {self.name!r}: {name} = {shown(given)}: input should be a "
                    f"valid integer{', or one for each session' * (name == 'way')}"
                )

    def _sessions_left(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return what sessions and their way become by changed classes, if they do."""
        if "sessions" in changes and "way" not in changes and isinstance(self.way, tuple):
            return {"way": self.way[: changes["sessions"]]}
        if not {"way", "base_classes"} & set(changes) or "sessions" in changes:
            return {}
        base, way = changes.get("base_classes", self.base_classes), changes.get("way", self.way)
        if not isinstance(way, int):
            return {"sessions": len(way)}
        classes = changes.get("classes", self.classes)
        sessions = max(0, (classes - base) // max(1, way))
        if sessions == 0 and self.sessions > 0:
            raise UsageError(
                f"protocol {self.name!r}: {base} base classes of {classes} leave "
                f"{max(0, classes - base)} for sessions of way = {way}: no session fits; lower "
                "--way or --base-classes, or ask for --sessions 0"
            )
        return {"sessions": sessions}


@dataclass(frozen=True)
class LabelledSamples:
    """Samples with their global class ids: `labels` (n,), `features` by view (n, D), `images`.

    `images` are uint8 (n, H, W, 3) and present only for a method that needs images.
    """

    labels: torch.Tensor
    views: Mapping[str, torch.Tensor] = field(default_factory=dict)
    images: torch.Tensor | None = None

    @property
    def features(self) -> torch.Tensor:
        """Features (n, D) of the samples as they are, under the test transform."""
        return self.views["plain"]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Session(LabelledSamples):
    """What a method may learn from in one session, and nothing else.

    `class_ids` are the global ids of the classes that are new; `classes_seen` counts these and
    all earlier ones. In the base session `heldout` are base training samples that the backbone
    was not trained on, where the recipe holds some out.
    """

    index: int = 0
    class_ids: tuple[int, ...] = ()
    classes_seen: int = 0
    heldout: LabelledSamples | None = None

    @property
    def way(self) -> int:
        """Number of new classes."""
        return len(self.class_ids)


@dataclass(frozen=True)
class Queries:
    """Unlabelled test samples to be scored: features by view (n, D), and images where needed."""

    views: Mapping[str, torch.Tensor] = field(default_factory=dict)
    images: torch.Tensor | None = None

    @property
    def features(self) -> torch.Tensor:
        """Features (n, D) of the samples as they are."""
        return self.views["plain"]

    def __len__(self) -> int:
        first = self.images if self.images is not None else next(iter(self.views.values()))
        return len(first)


def load_protocol(path: Path, known: Mapping[str, Path] | None = None) -> Protocol:
    """Read and validate a protocol's TOML.

    `inherits = "other.toml"` takes the rest from another file, `inherits = "cifar100"` from a
    protocol of that name; files that an inherited one names are looked for beside it.

    Args:
        path: the file.
        known: the files of protocols that can be inherited by name.

    Raises:
        UsageError: the file is missing, is not TOML, or a key is unknown, missing or of a wrong
            type; the message names file and line.
    """
    data = _read_toml(path, (), known or {})
    if data.get("features") == "":
        line = _line_of(path, ("features",))
        where = f"{path}:{line}" if line else str(path)
        raise UsageError(f"{where}: features is empty; name a file of features, or leave it out")
    if data.get("features"):
        data = {**NOTHING_TRAINED, **data}
    refuse_unstorable(f"{path}:", data)
    try:
        protocol = Protocol.model_validate_json(
            json.dumps(data, default=_no_value, allow_nan=False)
        )
        if protocol.split == "canonical" and not protocol.canonical_shots:
            raise UsageError(
                f'{path}: split = "canonical" needs canonical_shots, the table of the list'
            )
        return protocol
    except ValidationError as error:
        location, problem = _first_problem(error)
        line = _line_of(path, location)
        where = f"{path}:{line}" if line else str(path)
        raise UsageError(f"{where}: {problem}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: holds a value that no protocol can have: {error}") from error


NOTHING_TRAINED: Mapping[str, Any] = {
    "dataset": FEATURES,
    "backbone": FEATURES,
    "recipe": {"epochs": 0},
    "images": {"size": 1, "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
}
"""What a protocol's file need not say where features come from a file; nothing reads it then."""


def _no_value(value: Any) -> Any:
    raise ValueError(f"{value} ({type(value).__name__})")


def _plain(value: Any) -> Any:
    """Return a value without NumPy's types, and lists and what else is iterated over as tuples."""
    value = plain(value)
    return tuple(map(_plain, value)) if isinstance(value, list | tuple | Iterator) else value


def _read_toml(path: Path, seen: tuple[Path, ...], known: Mapping[str, Path]) -> dict[str, Any]:
    if path in seen:
        raise UsageError(f"{path}: inherits from itself by way of {seen[-1]}")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such protocol file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a protocol: {error}") from error
    except RecursionError:
        raise UsageError(f"{path}: is nested too deeply for a protocol") from None
    except ValueError as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{path}:{line.group(1)}" if line else str(path)
        raise UsageError(f"{where}: not valid TOML: {error}") from error
    parent = data.pop("inherits", None)
    if parent is None:
        return data
    if not isinstance(parent, str):
        raise UsageError(f"{path}:{_line_of(path, ('inherits',))}: inherits must name a TOML file")
    place = path.parent / parent
    if not parent.endswith(".toml"):
        if parent not in known:
            at = _line_of(path, ("inherits",))
            raise UsageError(
                f"{path}:{at}: inherits = {parent!r}: no protocol of that name; "
                f"{nearest(parent, known)}; a file's name ends in .toml"
            )
        place = known[parent]
    inherited = _read_toml(place, (*seen, path), known)
    return _merged(_seen_from(path.parent, place.parent, inherited), data)


def _seen_from(folder: Path, other: Path, data: dict[str, Any]) -> dict[str, Any]:
    """Return what a file in `other` says, with the files that it names found from `folder`."""
    if folder.resolve() == other.resolve():
        return data

    def found(name: str) -> str:
        return os.path.relpath((other / name).resolve(), folder.resolve())

    order = data.get("class_order")
    changed = {
        name: found(data[name])
        for name in ("canonical_shots", "data", "features")
        if isinstance(data.get(name), str) and data[name]
    }
    if isinstance(order, str) and order.startswith("list:"):
        changed["class_order"] = f"list:{found(order.removeprefix('list:'))}"
    return data | changed


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in changes.items():
        old = merged.get(name)
        both = isinstance(old, dict) and isinstance(value, dict)
        merged[name] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _first_problem(error: ValidationError) -> tuple[tuple[str, ...], str]:
    """Return where the first problem is and say what it is and what to do."""
    # A misspelt key is also a missing one: naming the misspelling helps more.
    first = min(error.errors(), key=lambda problem: problem["type"] != "extra_forbidden")
    # Alternatives of a type are parts of the place too, by names that no file has.
    location = tuple(str(part) for part in first["loc"] if not re.search(r"[-\[]", str(part)))
    name = ".".join(location)
    if first["type"] == "extra_forbidden":
        parts: dict[str, type[_Frozen]] = {"images": ImageSpec, "recipe": Recipe}
        model = parts.get(location[0], Protocol) if len(location) > 1 else Protocol
        return location, f"unknown key {name!r}; {nearest(location[-1], model.model_fields)}"
    if first["type"] == "missing" and isinstance(first["loc"][-1], int):
        return location, f"{'.'.join(location[:-1])} has too few values"
    if first["type"] == "missing":
        return location[:-1], f"key {name!r} is missing"
    message = first["msg"].removeprefix("Value error, ")
    if not name:
        return location, message
    return location, f"{name} = {shown(first['input'])}: {message[0].lower()}{message[1:]}"


def _line_of(path: Path, location: tuple[str, ...]) -> int | None:
    """Return the line on which a key (or, failing that, its table) is written in a TOML file."""
    table: tuple[str, ...] = ()
    best = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        header = re.match(r"\s*\[([^\[\]]+)\]\s*(#.*)?$", line)
        if header:
            table = tuple(part.strip() for part in header.group(1).split("."))
            if table == location:
                best = number
            continue
        key = re.match(r"\s*([A-Za-z0-9_-]+)\s*=", line)
        if key and (*table, key.group(1)) == location[: len(table) + 1]:
            return number
    return best
