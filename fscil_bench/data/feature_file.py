"""Features from a file: what any code computed, in one of four forms; read with care, and written.

A file holds `train_features` (n, D), `train_labels` (n,), `test_features` (m, D) and `test_labels`
(m,); labels are 0 … C-1. It may name the samples (`train_names`, `test_names`) and the classes
(`class_names`, label by label), and hold what lists of shots go by (`class_keys`, `train_numbers`).

`.npz` has them as arrays; `.pt` as a dict of tensors, with lists of texts; `.safetensors` as
tensors, with texts as JSON lists in its metadata; `.parquet` as a frame with a row a sample and the
columns `split` (train or test), `label`, `features` (a list), and where there are any `name`,
`number`, `class_name` and `class_key`.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save

from fscil_bench.errors import DataError, UsageError, no_file, shown, some
from fscil_bench.store.files import replaced_file

Arrays = Mapping[str, Any]
"""What a file holds, by name: arrays, tensors, lists of texts."""

NEEDED = ("train_features", "train_labels", "test_features", "test_labels")
TEXTS = ("train_names", "test_names", "class_names", "class_keys")
KNOWN = (*NEEDED, *TEXTS, "train_numbers", "test_numbers")
PICKLE = rb"\x80[\x02-\x05][^\0]"
"""How pickles of today's protocols begin, and no other form."""
LENGTHS = (1e-12, 1e12)
"""How long features may be: beyond, float32 cannot hold their squares, or what is made of these."""
COLUMNS = {"features": "features", "label": "labels", "name": "names", "number": "numbers"}
"""Columns of a frame -> what the arrays of a half are called."""


@dataclass(frozen=True)
class FeatureHalf:
    """The training or the test samples of a file.

    Attributes:
        features: float32 (n, D), finite; each row is 0 or as long as `LENGTHS` allow.
        labels: int64 (n,).
        names: of the samples, each once; empty where the file has none.
        numbers: int64 (n,), how published lists of shots name them; None where the file has none.
    """

    features: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...] = ()
    numbers: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def row(self, number: int) -> str:
        """Return how messages call a row."""
        return f"row {number}" + (f" ({self.names[number]})" if self.names else "")


@dataclass(frozen=True)
class FeatureFile:
    """What a file of features holds, checked.

    Attributes:
        name: the file's, without its ending.
        train: training samples of all classes.
        test: test samples.
        class_names: by label; empty where the file has none.
        class_keys: how published lists of shots name the classes; likewise.
        remarks: what a user should know of how it was read.
    """

    name: str
    train: FeatureHalf
    test: FeatureHalf
    class_names: tuple[str, ...] = ()
    class_keys: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def dim(self) -> int:
        """D."""
        return int(self.train.features.shape[1])

    @property
    def classes(self) -> int:
        """C."""
        return int(self.train.labels.max()) + 1

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, whatever the form: 64 hexadecimal digits."""
        digest = hashlib.sha256(json.dumps([self.class_names, self.class_keys]).encode())
        for half in (self.train, self.test):
            listed = half.features.shape, half.names, half.numbers is not None
            digest.update(json.dumps(listed).encode())
            for array in (half.features, half.labels, half.numbers):
                digest.update(b"" if array is None else np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def title(self) -> str:
        """What keys and tables call it."""
        return f"{self.name} (sha256 {self.digest[:12]}), D = {self.dim}"

    @cached_property
    def signed(self) -> bool:
        """Whether some feature is negative."""
        return bool(min(half.features.min() for half in (self.train, self.test)) < 0)

    @cached_property
    def constant(self) -> str:
        """Which half has one feature in all its rows; empty where none has."""
        for name, half in (("train", self.train), ("test", self.test)):
            first, last = half.features[0], half.features[-1]
            if len(half) > 1 and np.array_equal(first, last) and (half.features == first).all():
                what = "equal" if first.any() else "0"
                return f"all {len(half)} rows of {name}_features are {what}"
        return ""

    def class_name(self, label: int) -> str:
        """Return the name of a class; its label where the file has no names."""
        return self.class_names[label] if self.class_names else str(label)


def read_feature_file(path: Path) -> FeatureFile:
    """Read a file of features; nothing in it is executed.

    Features of another numeric type than float32 are converted, which `remarks` tell.

    Raises:
        DataError: it is damaged, holds objects, lacks arrays, holds more rows, values or labels
            than fit, or features too long or short to compute with; the message names array and
            first row.
        UsageError: it is not there, or of another form.
    """
    form = _form(path)
    if not path.is_file():
        raise UsageError(f"{path}: {no_file(path)} of features")
    try:
        arrays = form.read(path)
    except (DataError, UsageError):
        raise
    except Exception as error:  # what a damaged file does to a library is not foreseeable
        raise DataError(f"{path}: {_unread(path, error)}") from error
    try:
        return _checked(path, arrays)
    except (DataError, UsageError):
        raise
    except Exception as error:  # nor what all may be a tensor
        reason = re.sub(r"\s+", " ", str(error))[:200]
        raise DataError(
            f"{path}: cannot be read as {path.suffix} of arrays ({type(error).__name__}: "
            f"{reason}); save plain arrays"
        ) from error


PLAIN = {
    ".pt": "tensors (torch.from_numpy) and lists of texts",
    ".npz": "plain arrays, texts with .astype(str)",
}
"""What is none, by the ending of the file."""


def _unread(path: Path, error: Exception) -> str:
    """Return why a library could not read a file; of its advice how to do so without care, none."""
    text = str(error)
    unpickling = isinstance(error, pickle.UnpicklingError)
    named = re.search(r"GLOBAL ([\w.]+)", text) if unpickling else None
    with path.open("rb") as file:
        begins = file.read(3)
    if named or text.startswith("Object arrays") or re.match(PICKLE, begins):
        what = f" (it names {named[1]})" if named else ""
        return f"pickled objects are refused{what}; save {PLAIN.get(path.suffix, 'plain arrays')}"
    reason = "" if unpickling or "allow_pickle" in text else re.sub(r"\s+", " ", text)[:200]
    told = type(error).__name__ + f": {reason}" * bool(reason)
    return f"cannot be read as {path.suffix} ({told}): damaged or cut short: copy it again"


def _checked(path: Path, arrays: Arrays) -> FeatureFile:
    missing = [name for name in NEEDED if name not in arrays]
    if missing:
        raise DataError(
            f"{path}: lacks {', '.join(missing)}; it holds {some(sorted(arrays)) or 'nothing'}"
        )
    remarks = [f"not read: {some(extra)}"] if (extra := sorted(set(arrays) - set(KNOWN))) else []
    classes = {name: _texts(path, name, arrays) for name in ("class_names", "class_keys")}
    if not classes["class_keys"]:  # nothing else tells them apart
        _refuse_twice(path, "class_names", classes["class_names"])
    train, test = (_half(path, half, arrays, remarks) for half in ("train", "test"))
    if train.features.shape[1] != test.features.shape[1]:
        raise DataError(
            f"{path}: train_features have D = {train.features.shape[1]}, test_features D = "
            f"{test.features.shape[1]}; both must come from one network"
        )
    _check_labels(path, train, test, classes)
    found = FeatureFile(path.stem, train, test, **classes)
    untested = sorted({*train.labels.tolist()} - {*test.labels.tolist()})
    if untested:
        named = some([repr(found.class_name(label)) for label in untested])
        remarks.append(f"no test row is of class {named}: no run can use them")
    if found.constant:
        remarks.append(f"{found.constant}: no run can use them")
    if copies := copied_rows(train.features, test.features):
        row, known = copies[0]
        first = f"{test.row(row)} is training {train.row(known)}"
        remarks.append(f"{told_copies(len(copies))} (first: {first})")
    remarks = [f"{path.name}: {remark}" for remark in dict.fromkeys(remarks)]
    return replace(found, remarks=tuple(remarks))


def copied_rows(train: np.ndarray, test: np.ndarray) -> list[tuple[int, int]]:
    """Return which test rows (m, D) equal a training row (n, D), and which; not rows of zeros."""
    known: dict[int, int] = {}
    for number, row in enumerate(train):
        known.setdefault(hash(row.tobytes()), number)
    found = ((number, known.get(hash(row.tobytes()))) for number, row in enumerate(test))
    return [
        (number, first)
        for number, first in found
        if first is not None and test[number].any() and np.array_equal(test[number], train[first])
    ]


def told_copies(count: int) -> str:
    """Say how many test rows `copied_rows` found."""
    return (
        f"{count} test rows equal a training row"
        if count > 1
        else "1 test row equals a training row"
    )


def write_feature_file(path: Path, file: FeatureFile) -> None:
    """Write a file of features in the form that its ending names.

    Raises:
        UsageError: the ending names no form, or a library for it is missing.
        WriteError: it cannot be written.
    """
    form = _form(path)
    arrays: dict[str, Any] = {"class_names": file.class_names, "class_keys": file.class_keys}
    for name, half in (("train", file.train), ("test", file.test)):
        arrays |= {f"{name}_features": half.features, f"{name}_labels": half.labels}
        arrays |= {f"{name}_names": half.names}
        if half.numbers is not None:
            arrays[f"{name}_numbers"] = half.numbers
    held = {key: value for key, value in arrays.items() if len(value)}
    with replaced_file(path) as new:
        form.write(new, held)


def require_form(path: Path) -> None:
    """Refuse a file that cannot be written for its ending.

    Raises:
        UsageError: the ending names no form, or a library for it is missing.
    """
    if _form(path) is _FORMS[".parquet"]:
        _require_pyarrow(path)


def card(file: FeatureFile) -> list[str]:
    """Return what a user wants to know of a file, a line each: counts, D, sign, norms."""
    lines = [
        f"name            {file.name}",
        f"digest          {file.digest}",
        f"D               {file.dim}",
    ]
    lines.append(f"classes         {file.classes}, {'named' if file.class_names else 'not named'}")
    for title, half in (("training rows  ", file.train), ("test rows      ", file.test)):
        counts = np.bincount(half.labels, minlength=file.classes)
        each = (
            str(counts.min())
            if counts.min() == counts.max()
            else f"{counts.min()} to {counts.max()}"
        )
        named = "named" if half.names else "not named"
        lines.append(f"{title} {len(half)}, {each} a class, {named}")
    both = (file.train.features, file.test.features)
    negative = sum(int((x < 0).sum()) for x in both) / sum(x.size for x in both)
    sign = f"{negative:.1%} of the values are negative" if file.signed else "no value is negative"
    norms = np.concatenate([np.linalg.norm(x, axis=1) for x in both])
    lines.append(f"sign            {sign}")
    lines.append(f"norms           {norms.min():.4g} to {norms.max():.4g}, mean {norms.mean():.4g}")
    return [*lines, *(f"remark          {remark}" for remark in file.remarks)]


def _half(path: Path, name: str, arrays: Arrays, remarks: list[str]) -> FeatureHalf:
    labels = _integers(path, f"{name}_labels", arrays[f"{name}_labels"])
    names = _texts(path, f"{name}_names", arrays)
    where = f"{name}_features"
    features, kind = _array(arrays[where])
    if features.dtype.kind not in "iuf":
        raise DataError(f"{path}: {where} are {kind}, not numbers; save plain arrays of float32")
    if features.ndim != 2 or not features.size:
        raise DataError(f"{path}: {where} have the shape {features.shape}, expected (rows, D)")
    for other, count in ((f"{name}_labels", len(labels)), (f"{name}_names", len(names))):
        if count != len(features) and (count or other in arrays):
            raise DataError(f"{path}: {where} has {len(features)} rows, {other} has {count}")
    if kind != "float32":
        remarks.append(f"features converted from {kind} to float32")
    with np.errstate(over="ignore"):  # what does not fit is infinite, and refused below
        lengths = np.sqrt(np.einsum("ij,ij->i", features, features, dtype=np.float64))
        zero = np.asarray(~features.any(axis=1))
        features = np.ascontiguousarray(features, dtype=np.float32)
    numbers = arrays.get(f"{name}_numbers")
    if numbers is not None:
        numbers = _integers(path, f"{name}_numbers", numbers)
        if len(numbers) != len(labels):
            raise DataError(
                f"{path}: {where} has {len(labels)} rows, {name}_numbers {len(numbers)}"
            )
    half = FeatureHalf(features, labels, names, numbers)
    remarks += _checked_rows(path, where, half, lengths, zero)
    return half


def _checked_rows(
    path: Path, where: str, half: FeatureHalf, lengths: np.ndarray, zero: np.ndarray
) -> list[str]:
    """Refuse rows that cannot be computed with; return what is to be remarked on the others."""

    def named(row: int) -> str:
        return f"{half.row(row)}, of class {half.labels[row]}"

    bad = np.flatnonzero(~np.isfinite(half.features).all(axis=1))
    if len(bad):
        raise DataError(
            f"{path}: {where}: {named(bad[0])}, holds NaN or infinity"
            f"{f'; {len(bad)} rows do' * (len(bad) > 1)}"
        )
    bad = np.flatnonzero(~zero & ((lengths < LENGTHS[0]) | (lengths > LENGTHS[1])))
    if len(bad):
        raise DataError(
            f"{path}: {where}: {named(bad[0])}, has the length "
            f"{lengths[bad[0]]:.3g}{f', and {len(bad) - 1} more rows are so' * (len(bad) > 1)}; "
            f"float32 needs {LENGTHS[0]:g} to {LENGTHS[1]:g}: divide the features of both halves "
            f"by one number, such as {np.median(lengths[~zero]):.0e}"
        )
    rows = np.flatnonzero(zero)
    if not len(rows) or len(rows) == len(half) > 1:  # where all are, the file says so
        return []
    return [
        f"{where}: {len(rows)} row{'s are' if len(rows) > 1 else ' is'} 0, first {named(rows[0])}"
    ]


def _integers(path: Path, name: str, value: Any) -> np.ndarray:
    array, kind = _array(value)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise DataError(
            f"{path}: {name} are {kind} of the shape {array.shape}, expected integers (rows,)"
        )
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise DataError(f"{path}: {name}: {array.max()} is too large")
    return np.ascontiguousarray(array, dtype=np.int64)


def _texts(path: Path, name: str, arrays: Arrays) -> tuple[str, ...]:
    """Return names, each once but for class names; () where there are none."""
    given = arrays.get(name, ())
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str | bytes):
        raise DataError(f"{path}: {name} is {shown(given)}, not a list of texts")
    texts = tuple(given.tolist() if isinstance(given, np.ndarray) else given)
    texts = tuple(text.decode() if isinstance(text, bytes) else text for text in texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"{path}: {name}: entry {number} is {shown(text)}, not a text")
    if name != "class_names":
        _refuse_twice(path, name, texts)
    return texts


def _refuse_twice(path: Path, name: str, texts: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for number, text in enumerate(texts):
        if first.setdefault(text, number) != number:
            keys = "; class_keys tell classes of one name apart" * (name == "class_names")
            raise DataError(
                f"{path}: {name}: {text!r} stands in rows {first[text]} and {number}{keys}"
            )


def _check_labels(
    path: Path, train: FeatureHalf, test: FeatureHalf, texts: Mapping[str, Sequence[str]]
) -> None:
    """Refuse labels that are not 0 … C-1, or not as many as there are names of classes."""
    classes = int(train.labels.max()) + 1
    for name, names in texts.items():
        if names and len(names) != classes:
            raise DataError(
                f"{path}: {name} names {len(names)} classes, train_labels go from "
                f"{train.labels.min()} to {classes - 1}"
            )
    for name, half in (("train", train), ("test", test)):
        outside = np.flatnonzero((half.labels < 0) | (half.labels >= classes))
        if len(outside):
            raise DataError(
                f"{path}: {name}_labels: {half.row(outside[0])} has label "
                f"{half.labels[outside[0]]}, outside 0 … {classes - 1} of the training labels "
                f"({len(outside)} rows)"
            )
    present = np.unique(train.labels)
    if len(present) < classes:
        absent = int(np.flatnonzero(present != np.arange(len(present)))[0])
        raise DataError(
            f"{path}: train_labels must be 0 … C-1: no row has label {absent}, and "
            f"{classes - len(present)} of 0 … {classes - 1} are missing"
        )


def _array(value: Any) -> tuple[np.ndarray, str]:
    """Return an array, and the type that its values have in the file."""
    if isinstance(value, torch.Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        plain = value.detach().float() if value.dtype == torch.bfloat16 else value.detach()
        return plain.numpy(), kind
    array = np.asarray(value)
    return array, str(array.dtype)


@dataclass(frozen=True)
class _Form:
    """How arrays lie in files of one ending."""

    read: Callable[[Path], Arrays]
    write: Callable[[Path, Arrays], None]


def _read_npz(path: Path) -> Arrays:
    content = np.load(path, allow_pickle=False)
    if not isinstance(content, np.lib.npyio.NpzFile):
        raise DataError(f"{path}: holds one array; save all with np.savez(FILE, name=array, ...)")
    with content:
        return {name: content[name] for name in content.files}


def _write_npz(path: Path, arrays: Arrays) -> None:
    with path.open("wb") as file:
        held: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
        np.savez(file, **held)


def _read_pt(path: Path) -> Arrays:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is refused anyway, or read all the same
        content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        raise DataError(f"{path}: holds a {type(content).__name__}; save a dict of named tensors")
    return {str(name): value for name, value in content.items()}


def _write_pt(path: Path, arrays: Arrays) -> None:
    torch.save({name: _plain(value) for name, value in arrays.items()}, path)


def _read_safetensors(path: Path) -> Arrays:
    with safe_open(path, framework="pt") as file:
        try:
            texts = {k: json.loads(v) for k, v in (file.metadata() or {}).items() if k in TEXTS}
        except ValueError as error:
            raise DataError(f"{path}: texts in its metadata are no JSON lists: {error}") from error
        return {**texts, **{name: file.get_tensor(name) for name in file.keys()}}  # noqa: SIM118


def _write_safetensors(path: Path, arrays: Arrays) -> None:
    texts = {name: json.dumps(value) for name, value in arrays.items() if name in TEXTS}
    tensors = {name: _plain(value) for name, value in arrays.items() if name not in TEXTS}
    path.write_bytes(save(tensors, metadata=texts))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.require(value, requirements="W"))
    return list(value)


def _read_parquet(path: Path) -> Arrays:
    _require_pyarrow(path)
    import pandas as pd

    frame = pd.read_parquet(path).reset_index(drop=True)  # rows are counted as they lie
    _check_frame(path, frame)
    arrays: dict[str, Any] = {}
    for half in ("train", "test"):
        own = frame[frame["split"] == half]
        lengths = own["features"].map(len)
        odd = lengths.index[lengths != lengths.max()]
        if len(odd):
            raise DataError(
                f"{path}: row {odd[0]} has {lengths[odd[0]]} features, others have {lengths.max()}"
            )
        for column in COLUMNS.keys() & set(frame):
            values = own[column].to_numpy()
            if column == "features" and len(values):
                values = np.stack([*values])
                _refuse_empty(path, values, own.index)
            arrays[f"{half}_{COLUMNS[column]}"] = values
    for column, name in (("class_name", "class_names"), ("class_key", "class_keys")):
        if column in frame:
            arrays[name] = _class_texts(path, frame, column)
    return arrays


def _check_frame(path: Path, frame: Any) -> None:
    """Refuse a frame without a column that is needed, with empty cells, or with other halves."""
    lacking = [name for name in ("split", "label", "features") if name not in frame]
    if lacking:
        raise DataError(
            f"{path}: lacks the columns {', '.join(lacking)}; it has {some([*map(str, frame)])}; "
            "write a row a sample: split (train or test), label, features (a list)"
        )
    for column in ("split", "label", "features", "name", "number", "class_name", "class_key"):
        empty = frame.index[frame[column].isna()] if column in frame else frame.index[:0]
        if len(empty):
            raise DataError(f"{path}: row {empty[0]}: {column} is empty")
    odd = frame.index[~frame["split"].isin(["train", "test"])]
    if len(odd):
        raise DataError(
            f"{path}: row {odd[0]}: split = {shown(frame['split'][odd[0]])}, write train or test"
        )


def _refuse_empty(path: Path, features: np.ndarray, rows: Any) -> None:
    """Refuse entries of a frame's lists that are empty or NaN, which are read as one."""
    odd = np.argwhere(features != features)
    if len(odd):
        row, entry = odd[0]
        raise DataError(f"{path}: row {rows[row]}: features: entry {entry} is empty or NaN")


def _class_texts(path: Path, frame: Any, column: str) -> tuple[str, ...]:
    pairs = frame[["label", column]].drop_duplicates().sort_values("label")
    twice = pairs["label"][pairs["label"].duplicated()]
    if len(twice):
        names = pairs[column][pairs["label"] == twice.iloc[0]]
        raise DataError(f"{path}: label {twice.iloc[0]} has several names: {some([*names])}")
    return tuple(pairs[column])


def _write_parquet(path: Path, arrays: Arrays) -> None:
    _require_pyarrow(path)
    import pandas as pd

    frames = []
    for half in ("train", "test"):
        labels = arrays[f"{half}_labels"]
        columns: dict[str, Any] = {"split": half, "label": labels}
        for column in ("name", "number"):
            if (name := f"{half}_{COLUMNS[column]}") in arrays:
                columns[column] = arrays[name]
        for column, name in (("class_name", "class_names"), ("class_key", "class_keys")):
            if name in arrays:
                columns[column] = [arrays[name][label] for label in labels]
        columns["features"] = list(arrays[f"{half}_features"])
        frames.append(pd.DataFrame(columns))
    pd.concat(frames, ignore_index=True).to_parquet(path)


def _require_pyarrow(path: Path) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UsageError(
            f"{path}: Parquet needs pyarrow: pip install 'fscil-bench[parquet]'; .npz, .pt and "
            ".safetensors need nothing"
        ) from None


_FORMS = {
    ".npz": _Form(_read_npz, _write_npz),
    ".pt": _Form(_read_pt, _write_pt),
    ".pth": _Form(_read_pt, _write_pt),
    ".safetensors": _Form(_read_safetensors, _write_safetensors),
    ".parquet": _Form(_read_parquet, _write_parquet),
}


def _form(path: Path) -> _Form:
    if path.suffix.lower() not in _FORMS:
        raise UsageError(f"{path}: a file of features ends in {', '.join(_FORMS)}")
    return _FORMS[path.suffix.lower()]
