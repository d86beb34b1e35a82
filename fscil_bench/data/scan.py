"""Turns a folder of somebody's own images into the TOML of a protocol."""

from __future__ import annotations

import json
import re
import textwrap
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from PIL import Image

from fscil_bench.data.feature_file import read_feature_file
from fscil_bench.data.feature_match import alone
from fscil_bench.data.lists import index_of
from fscil_bench.data.reader import DatasetIndex, DatasetReader, Item, ReadRequest, Source
from fscil_bench.errors import DataError, UsageError, some
from fscil_bench.plugins.registry import Registry, load_registry
from fscil_bench.protocol import FEATURES, ImageSpec

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""ImageNet's channel statistics, which the field uses for photographs of any kind."""

WIDTH = 100

Options = dict[str, int | float | str]

MEASURED = 500
"""How many images, spread over the data set, are opened to learn their usual size."""

SPLIT = {"test_fraction": 0.2, "split_seed": 0}
"""How classes are divided where the data have no halves and the user says nothing."""

NAMED = 20
"""How many classes with too few images a message lists."""


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


def scan(
    folder: Path,
    way: int,
    shot: int,
    base: str,
    *,
    name: str | None = None,
    test_fraction: float | None = None,
    split_seed: int | None = None,
    at: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> str:
    """Return the TOML of a protocol on the images of a folder or CSV.

    Args:
        folder: a folder with one folder for each class, or with train/ and test/, or a CSV of
            path,label[,split].
        way: new classes a session.
        shot: images of each new class.
        base: classes of the base session, as a number or as a share of all (`60%`).
        name: the protocol's name; by default the folder's.
        test_fraction: part of every class that is for testing, where the data have no halves.
        split_seed: chooses which part that is.
        at: the folder that the TOML will lie in; data in it are named relative to it.
        say: is told which classes fill no session.

    Raises:
        DataError: too few classes, or images of a class; class, number and need are named.
        UsageError: a number makes no sense.
    """
    _check_positive(way, shot)
    given = {"test_fraction": test_fraction, "split_seed": split_seed}
    asked: Options = {key: value for key, value in given.items() if value is not None}
    registry = load_registry()
    reader: DatasetReader = registry.get("data set", "folder").value()
    source = reader.find([folder])
    index, options = _index(reader, source, asked)
    shape = _shape(folder, len(index.class_names), way, shot, base)
    _check_images(folder, index, shape)
    _tell_unused(index, shape, say)
    side = _usual_side(source, index)
    name = name or free_name(folder, registry)
    return _toml(name, place_from(folder, at), folder, index, shape, side, options)


def scan_features(
    file: Path,
    way: int,
    shot: int,
    base: str,
    name: str | None = None,
    at: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> str:
    """Return the TOML of a protocol on a file of features; `say` is told how that was read, too.

    Classes are in the order of their labels; the other arguments are those of `scan`.

    Raises:
        DataError: the file cannot be used, or has too few classes, or samples of a class.
        UsageError: a number makes no sense, or the file is not there.
    """
    _check_positive(way, shot)
    found = read_feature_file(file)
    index = index_of(alone(found, FEATURES))
    shape = _shape(file, found.classes, way, shot, base)
    _check_images(file, index, shape)
    for remark in found.remarks:
        say(remark)
    _tell_unused(index, shape, say)
    lines = [
        *_comment(
            f"{shape.classes} classes in the order of their labels, with {_counts(index, shape)}. "
            f"Features from a file, D = {found.dim}: nothing is trained."
        ),
        *_session_lines(index, shape),
        f"name = {_quoted(name or free_name(file, load_registry()))}",
        f"title = {_quoted(_title(file))}",
        _data_line("features", place_from(file, at)),
        *_shape_lines(shape),
    ]
    return "\n".join(lines) + "\n"


def place_from(data: Path, folder: Path | None) -> str:
    """Return how a TOML in a folder names its data: relative, unless they lie elsewhere."""
    whole = data.resolve()
    if folder is None or not whole.is_relative_to(folder.resolve()):
        return str(whole)
    return whole.relative_to(folder.resolve()).as_posix()


def _data_line(key: str, place: str) -> str:
    may_be = "may be " * Path(place).is_absolute()
    return f"{key} = {_quoted(place)}  # {may_be}relative to this file"


def _index(reader: DatasetReader, source: Source, asked: Options) -> tuple[DatasetIndex, Options]:
    """Return all images, and the options with which the reader listed them."""
    spec = ImageSpec(size=FORMS[0].size, mean=MEAN, std=STD)
    options: Options = {**SPLIT, **asked}
    try:
        return reader.index(source, ReadRequest(0, spec, options)), options
    except UsageError:
        # Data with halves of their own take no options; that matters only if some were asked for.
        return reader.index(source, ReadRequest(0, spec, asked)), asked


def _check_positive(way: int, shot: int) -> None:
    for what, number in (("--way", way), ("--shot", shot)):
        if number < 1:
            raise UsageError(f"{what} {number}: must be 1 or more")


def _shape(folder: Path, classes: int, way: int, shot: int, base: str) -> Shape:
    match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?) ?%", base.strip())
    if match is None:
        raise UsageError(f"--base {base}: write a number of classes, 60, or a share of them, 60%")
    count = int(match[1]) if match[1] else round(classes * float(match[2]) / 100)
    if count < 2:
        raise UsageError(f"--base {base}: the base session needs at least 2 of {classes} classes")
    if count + way > classes:
        raise DataError(
            f"{folder}: too few classes for one session: has {classes}, needs {count} (base) + "
            f"{way} (way) = {count + way}; lower --base or --way"
        )
    return Shape(classes, count, way, shot, (classes - count) // way)


def _check_images(folder: Path, index: DatasetIndex, shape: Shape) -> None:
    train, test = (Counter(item.label for item in half) for half in (index.train, index.test))
    short = [
        f"\n  class {index.class_names[label]!r} has {train[label] + test[label]}: "
        f"{train[label]} for training, {test[label]} for testing"
        for label in range(shape.used)
        if train[label] < shape.shot or not test[label]
    ]
    if short:
        more = f"\n  and {len(short) - NAMED} more" if len(short) > NAMED else ""
        raise DataError(
            f"{folder}: too few images in {len(short)} of {shape.used} classes; each needs "
            f"{shape.shot + 1}: {shape.shot} for training (shot), 1 for testing"
            f"{''.join(short[:NAMED])}{more}"
        )


def _tell_unused(index: DatasetIndex, shape: Shape, say: Callable[[str], None]) -> None:
    """Say which classes are left over where the last session would not be full."""
    left = [repr(name) for name in index.class_names[shape.used :]]
    if left:
        say(
            f"{len(left)} of {shape.classes} classes fill no session of {shape.way} and are not "
            f"used: {some(left, NAMED)}; with another --way or --base they may"
        )


def _usual_side(source: Source, index: DatasetIndex) -> float:
    """Return the median of the images' shorter sides; images that cannot be opened do not count."""
    path = source.location
    root = path if path.is_dir() else path.parent
    items = index.train + index.test
    sides = []
    for item in items[:: max(1, len(items) // MEASURED)]:
        if not (root / item.key).is_file():  # a pipe would be waited for
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                with Image.open(root / item.key) as image:
                    sides.append(min(image.size))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            continue
    if not sides:
        raise DataError(f"{path}: none of its files can be opened as images")
    return float(median(sides))


def free_name(place: Path, registry: Registry) -> str:
    """Return a protocol's name made of a folder's or file's, and not that of a known protocol."""
    plain = unicodedata.normalize("NFKD", _title(place))
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain.encode("ascii", "ignore").decode())
    name = kept.strip("_.-") or "own"
    return f"{name}_own" if name in registry.names("protocol") else name


def _toml(
    name: str,
    data: str,
    folder: Path,
    index: DatasetIndex,
    shape: Shape,
    side: float,
    options: Options,
) -> str:
    """Return a protocol on the images of a folder or CSV.

    Args:
        name: the protocol's name.
        data: how it names the data.
        folder: the folder or CSV.
        index: what is in it.
        shape: how its classes are cut into sessions.
        side: median shorter side of its images.
        options: of the reader.
    """
    form = next(form for form in FORMS if side <= form.largest)
    lines = [*_head(index, shape, form, side), *_top(folder, name, data, shape, form, options)]
    return "\n".join([*lines, *_tables(form)]) + "\n"


def _title(folder: Path) -> str:
    """Return the name of a folder, or of a file without its ending."""
    place = folder.resolve()
    return place.name if place.is_dir() else place.stem


def _head(index: DatasetIndex, shape: Shape, form: Form, side: float) -> list[str]:
    text = (
        f"{shape.classes} classes in the sorted order of their names, with "
        f"{_counts(index, shape)}. The median shorter side of the images is {side:g} pixels, hence "
        f"{form.size}×{form.size} and {form.backbone}."
    )
    return [*_comment(text), *_session_lines(index, shape)]


def _counts(index: DatasetIndex, shape: Shape) -> str:
    halves = ((index.train, "training"), (index.test, "test"))
    return " and ".join(
        f"{len(half)} {what} images ({_spread(half, shape.classes)} a class)"
        for half, what in halves
    )


def _session_lines(index: DatasetIndex, shape: Shape) -> list[str]:
    names = [_quoted(name) for name in index.class_names]
    lines = [f"Base session, {shape.base} classes: {', '.join(names[: shape.base])}"]
    for session in range(shape.sessions):
        start = shape.base + session * shape.way
        lines.append(f"Session {session + 1}: {', '.join(names[start : start + shape.way])}")
    if shape.used < shape.classes:
        lines.append(f"Not used: {', '.join(names[shape.used :])}")
    return [text for line in lines for text in _comment(line)]


def _top(
    folder: Path, name: str, data: str, shape: Shape, form: Form, options: Options
) -> list[str]:
    weights = '  # or "imagenet"' if form.size == 224 else ""
    lines = [
        f"name = {_quoted(name)}",
        f"title = {_quoted(_title(folder))}",
        'dataset = "folder"',
        _data_line("data", data),
        *_shape_lines(shape),
        f"backbone = {_quoted(form.backbone)}",
        f'pretraining = "none"{weights}',
    ]
    if options:
        inner = ", ".join(f"{key} = {value}" for key, value in options.items())
        lines.insert(4, f"reader_options = {{ {inner} }}")
    return lines


def _shape_lines(shape: Shape) -> list[str]:
    return [
        f"classes = {shape.classes}",
        f"base_classes = {shape.base}",
        f"way = {shape.way}",
        f"shot = {shape.shot}",
        f"sessions = {shape.sessions}",
        'split = "seeded"',
    ]


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
