"""The protocol contract: what is trained on what, in which sessions; what a method sees of it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fscil_bench.errors import UsageError, nearest

if TYPE_CHECKING:
    import torch

PositiveInt = Annotated[int, Field(gt=0)]
Channels = tuple[float, float, float]
Augmentation = Literal[
    "crop", "resized_crop", "flip", "autoaugment_cifar10", "autoaugment_imagenet", "cutout"
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
    choose anything.
    """

    epochs: PositiveInt
    batch_size: PositiveInt = 128
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    schedule: Literal["step", "cosine", "constant"] = "step"
    milestones: tuple[PositiveInt, ...] = ()
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.1
    augment: tuple[Augmentation, ...] = ("crop", "flip")
    checkpoint: Literal["last", "best"] = "last"
    holdout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.checkpoint == "best" and self.holdout == 0:
            raise ValueError('checkpoint = "best" needs holdout > 0 to choose on')
        if self.schedule != "step" and self.milestones:
            raise ValueError(f'milestones have no effect with schedule = "{self.schedule}"')
        return self


class Protocol(_Frozen):
    """A data set cut into one base session and few-shot sessions; frozen data, no behaviour.

    `classes` is the number of classes the data set must offer, in the reader's order; the first
    `base_classes` are the base session's, then each session brings the next `way` classes with
    `shot` images each. `split` is the default choice of shots: `canonical` (a published list)
    or `seeded`. `canonical_shots` is the table of that list beside the protocol's file, and
    `canonical_rows` the protocol that its rows are written for, by default this one; a protocol
    that inherits a table and has no use for it writes `canonical_shots = ""`.
    `train_images` is the number of training images a class of the full data set
    has; a copy that has fewer is used, and every run and table says so. `class_order` is the
    data set's own, a seeded permutation of it, `seed:3`, or the order of a list beside the
    protocol's file, `list:FILE`, with the key of a class on each line. `data` is where a user's
    own data lie, relative to the protocol's file; it is in no key and no record, the images'
    digest is.
    `reader_options` are passed on to the data set's reader. With `test_from_train` that fraction
    of every class's training images plays the test images, and the test half is never read.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    title: str
    dataset: str
    classes: PositiveInt
    base_classes: PositiveInt
    way: PositiveInt
    shot: PositiveInt
    sessions: Annotated[int, Field(ge=0)]
    class_order: Annotated[str, Field(pattern=r"^(dataset|seed:(0|[1-9][0-9]*)|list:.+)$")] = (
        "dataset"
    )
    split: Literal["canonical", "seeded"] = "seeded"
    canonical_shots: str | None = None
    canonical_rows: str | None = None
    train_images: PositiveInt | None = None
    data: Annotated[str | None, Field(exclude=True)] = None
    reader_options: dict[str, int | float | str] = {}
    test_from_train: Annotated[float | None, Field(gt=0, lt=1)] = None
    backbone: str
    pretraining: Literal["none", "imagenet"] = "none"
    images: ImageSpec
    recipe: Recipe

    @model_validator(mode="after")
    def _check(self) -> Self:
        used = self.base_classes + self.way * self.sessions
        if used > self.classes:
            raise ValueError(
                f"base_classes + way × sessions = {self.base_classes} + {self.way} × "
                f"{self.sessions} = {used} exceeds classes = {self.classes}"
            )
        if self.split == "canonical" and not self.canonical_shots:
            raise ValueError('split = "canonical" needs canonical_shots, the table of the list')
        return self

    @property
    def published_as(self) -> tuple[str | None, ...]:
        """Return the names under which papers' parameters for it may be found."""
        return self.name, self.canonical_rows

    @property
    def classes_used(self) -> int:
        """Number of classes seen after the last session."""
        return self.base_classes + self.way * self.sessions

    def session_classes(self, session: int) -> tuple[int, ...]:
        """Return the global ids of the classes new in `session` (0 is the base session)."""
        if session == 0:
            return tuple(range(self.base_classes))
        start = self.base_classes + self.way * (session - 1)
        return tuple(range(start, start + self.way))

    def classes_seen(self, session: int) -> int:
        """Return how many classes have been seen once `session` is learnt."""
        return self.base_classes + self.way * session

    def override(self, **changes: Any) -> Protocol:
        """Return this protocol with top-level or recipe fields changed, validated anew.

        Where `way` or `base_classes` change and `sessions` is not given, there are as many
        sessions as the classes allow.

        Raises:
            UsageError: a changed value does not fit.
        """
        data = {**self.model_dump(), "data": self.data}  # which a dump leaves out
        if {"way", "base_classes"} & set(changes) and "sessions" not in changes:
            base, way = (changes.get(name, data[name]) for name in ("base_classes", "way"))
            classes = changes.get("classes", self.classes)
            changes["sessions"] = max(0, (classes - base) // max(1, way))
            if changes["sessions"] == 0 and self.sessions > 0:
                raise UsageError(
                    f"protocol {self.name!r}: {base} base classes of {classes} leave "
                    f"{max(0, classes - base)} for sessions of way = {way}: no session fits; lower "
                    "--way or --base-classes, or ask for --sessions 0"
                )
        for name, value in changes.items():
            target = data["recipe"] if name in Recipe.model_fields else data
            target[name] = value
        try:
            return Protocol.model_validate(data)
        except ValidationError as error:
            raise UsageError(f"protocol {self.name!r}: {_first_problem(error)[1]}") from error


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


def load_protocol(path: Path) -> Protocol:
    """Read and validate a protocol's TOML; `inherits = "other.toml"` takes the rest from a sibling.

    Raises:
        UsageError: the file is missing, is not TOML, or a key is unknown, missing or of a wrong
            type; the message names file and line.
    """
    try:
        data = _read_toml(path, ())
        return Protocol.model_validate_json(json.dumps(data, default=partial(_refuse_date, path)))
    except RecursionError as error:
        raise UsageError(f"{path}: its values are nested too deeply") from error
    except ValidationError as error:
        location, problem = _first_problem(error)
        line = _line_of(path, location)
        where = f"{path}:{line}" if line else str(path)
        raise UsageError(f"{where}: {problem}") from error


def _read_toml(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path in seen:
        raise UsageError(f"{path}: inherits from itself by way of {seen[-1]}")
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path}: no such protocol file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a protocol: {error}") from error
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        where = f"{path}:{line.group(1)}" if line else str(path)
        raise UsageError(f"{where}: not valid TOML: {error}") from error
    except ValueError as error:  # a number of thousands of digits
        raise UsageError(f"{path}: cannot be read as a protocol: {error}") from error
    parent = data.pop("inherits", None)
    if parent is None:
        return data
    if not isinstance(parent, str):
        raise UsageError(f"{path}:{_line_of(path, ('inherits',))}: inherits must name a TOML file")
    return _merged(_read_toml(path.parent / parent, (*seen, path)), data)


def _refuse_date(path: Path, value: Any) -> str:
    raise UsageError(
        f"{path}: {value} is a date or a time, which no key takes; write text in quotes"
    )


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
    location = tuple(str(part) for part in first["loc"])
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
    return location, f"{name} = {first['input']!r}: {message[0].lower()}{message[1:]}"


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
