"""The text of a protocol's TOML, with comments that say what is in the data."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fscil_bench.data.reader import DatasetIndex, Item

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's channel statistics, which the field uses for photographs of any kind."""

WIDTH = 100

Options = dict[str, int | float | str]


@dataclass(frozen=True)
class Form:
    """How images of some size are trained; what is not the size is CEC's for such images."""

    largest: float
    size: int
    resize: int | None
    backbone: str
    milestones: tuple[int, ...]
    augment: tuple[str, ...]


FORMS = (
    Form(40, 32, None, "resnet20", (60, 70), ("crop", "flip")),
    Form(100, 84, 92, "resnet18", (40, 70), ("resized_crop", "flip")),
    Form(float("inf"), 224, 256, "resnet18", (30, 40, 60, 80), ("resized_crop", "flip")),
)
"""The first form whose `largest` reaches the median shorter side of the images is taken."""


@dataclass(frozen=True)
class Shape:
    """How many classes there are, and how they are cut into sessions."""

    classes: int
    base: int
    way: int
    shot: int
    sessions: int

    @property
    def used(self) -> int:
        """Number of classes after the last session."""
        return self.base + self.way * self.sessions


def protocol_toml(
    name: str,
    folder: Path,
    index: DatasetIndex,
    shape: Shape,
    side: float,
    options: Options,
) -> str:
    """Return a protocol on the images of a folder or CSV.

    Args:
        name: the protocol's name.
        folder: the folder or CSV.
        index: what is in it.
        shape: how its classes are cut into sessions.
        side: median shorter side of its images.
        options: of the reader.
    """
    form = next(form for form in FORMS if side <= form.largest)
    lines = [*_head(index, shape, form, side), *_top(folder, name, shape, form, options)]
    return "\n".join([*lines, *_tables(form)]) + "\n"


def title_of(folder: Path) -> str:
    """Return the name of a folder, or of a file without its ending."""
    place = folder.resolve()
    return place.name if place.is_dir() else place.stem


def _head(index: DatasetIndex, shape: Shape, form: Form, side: float) -> list[str]:
    halves = [
        f"{len(half)} {what} images ({_spread(half, shape.classes)} a class)"
        for half, what in ((index.train, "training"), (index.test, "test"))
    ]
    names = [_quoted(name) for name in index.class_names]
    lines = [
        f"{shape.classes} classes in the sorted order of their names, with {halves[0]} and "
        f"{halves[1]}. The median shorter side of the images is {side:g} pixels, hence "
        f"{form.size}×{form.size} and {form.backbone}.",
        f"Base session, {shape.base} classes: {', '.join(names[: shape.base])}",
    ]
    for session in range(shape.sessions):
        start = shape.base + session * shape.way
        lines.append(f"Session {session + 1}: {', '.join(names[start : start + shape.way])}")
    if shape.used < shape.classes:
        lines.append(f"Not used: {', '.join(names[shape.used :])}")
    return [text for line in lines for text in _comment(line)]


def _top(folder: Path, name: str, shape: Shape, form: Form, options: Options) -> list[str]:
    weights = '  # or "imagenet"' if form.size == 224 else ""
    lines = [
        f"name = {_quoted(name)}",
        f"title = {_quoted(title_of(folder))}",
        'dataset = "folder"',
        f"data = {_quoted(str(folder.resolve()))}  # may be relative to this file",
        f"classes = {shape.classes}",
        f"base_classes = {shape.base}",
        f"way = {shape.way}",
        f"shot = {shape.shot}",
        f"sessions = {shape.sessions}",
        'split = "seeded"',
        f"backbone = {_quoted(form.backbone)}",
        f'pretraining = "none"{weights}',
    ]
    if options:
        inner = ", ".join(f"{key} = {value}" for key, value in options.items())
        lines.insert(4, f"reader_options = {{ {inner} }}")
    return lines


def _tables(form: Form) -> list[str]:
    resize = [] if form.resize is None else [f"resize = {form.resize}"]
    return [
        "",
        "[images]",
        f"size = {form.size}",
        *resize,
        f"mean = {json.dumps(MEAN)}",
        f"std = {json.dumps(STD)}",
        "",
        "[recipe]",
        "epochs = 100",
        "batch_size = 128",
        "lr = 0.1",
        'schedule = "step"',
        f"milestones = {json.dumps(form.milestones)}",
        "gamma = 0.1",
        f"augment = {json.dumps(form.augment)}",
    ]


def _spread(items: Sequence[Item], classes: int) -> str:
    counts = Counter(item.label for item in items)
    numbers = [counts[label] for label in range(classes)]
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _quoted(text: str) -> str:
    """Return a TOML string; JSON's are, apart from one character that only JSON allows."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(line: str) -> list[str]:
    return textwrap.wrap(
        line,
        WIDTH,
        initial_indent="# ",
        subsequent_indent="#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
