"""Turns a folder of somebody's own images into the TOML of a protocol."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections import Counter
from pathlib import Path
from statistics import median

from PIL import Image

from fscil_bench.data.reader import DatasetIndex, DatasetReader, ReadRequest, Source
from fscil_bench.data.scan_toml import FORMS, MEAN, STD, Options, Shape, protocol_toml, title_of
from fscil_bench.errors import DataError, UsageError
from fscil_bench.plugins.registry import Registry, load_registry
from fscil_bench.protocol import ImageSpec

MEASURED = 500
"""How many images, spread over the data set, are opened to learn their usual size."""

SPLIT = {"test_fraction": 0.2, "split_seed": 0}
"""How classes are divided where the data have no halves and the user says nothing."""

NAMED = 20


def scan(
    folder: Path,
    way: int,
    shot: int,
    base: str,
    *,
    name: str | None = None,
    test_fraction: float | None = None,
    split_seed: int | None = None,
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

    Raises:
        DataError: too few classes, or images of a class; class, number and need are named.
        UsageError: a number makes no sense.
    """
    for what, number in (("--way", way), ("--shot", shot)):
        if number < 1:
            raise UsageError(f"{what} {number}: must be 1 or more")
    given = {"test_fraction": test_fraction, "split_seed": split_seed}
    asked: Options = {key: value for key, value in given.items() if value is not None}
    registry = load_registry()
    reader: DatasetReader = registry.get("data set", "folder").value()
    source = reader.find([folder])
    index, options = _index(reader, source, asked)
    shape = _shape(folder, len(index.class_names), way, shot, base)
    _check_images(folder, index, shape)
    side = _usual_side(source, index)
    name = name or _free_name(folder, registry)
    return protocol_toml(name, folder, index, shape, side, options)


def _index(reader: DatasetReader, source: Source, asked: Options) -> tuple[DatasetIndex, Options]:
    """Return all images, and the options with which the reader listed them."""
    spec = ImageSpec(size=FORMS[0].size, mean=MEAN, std=STD)
    options: Options = {**SPLIT, **asked}
    try:
        return reader.index(source, ReadRequest(0, spec, options)), options
    except UsageError:
        # Data with halves of their own take no options; that matters only if some were asked for.
        return reader.index(source, ReadRequest(0, spec, asked)), asked


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


def _usual_side(source: Source, index: DatasetIndex) -> float:
    """Return the median of the images' shorter sides; images that cannot be opened do not count."""
    path = source.path or Path()
    root = path if path.is_dir() else path.parent
    items = index.train + index.test
    sides = []
    for item in items[:: max(1, len(items) // MEASURED)]:
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


def _free_name(folder: Path, registry: Registry) -> str:
    """Return a protocol's name made of the folder's, and not that of a known protocol."""
    plain = unicodedata.normalize("NFKD", title_of(folder))
    kept = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain.encode("ascii", "ignore").decode())
    name = kept.strip("_.-") or "own"
    return f"{name}_own" if name in registry.names("protocol") else name
