"""What the data sets' tests share: copies on disk, pickles of Python 2, and one that means harm."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fscil_bench
from fscil_bench.data.reader import (
    DatasetIndex,
    DatasetReader,
    Digester,
    Item,
    Pixels,
    ReadRequest,
    Source,
    file_digest,
)
from fscil_bench.errors import DataError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec

ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00tU\x01btR"
DTYPE = (
    b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
)


def python2(value: Any) -> bytes:
    """Return what pickles of Python 2, protocol 2, have for a value: text is bytes there."""
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(part) for item in value.items() for part in item) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(python2(part) for part in value) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(python2(part) for part in value) + b"t"
    if isinstance(value, str):
        return b"T" + struct.pack("<i", len(value.encode())) + value.encode()
    if isinstance(value, int):
        return b"J" + struct.pack("<i", value)
    assert isinstance(value, np.ndarray)
    assert value.dtype == np.uint8
    content = b"T" + struct.pack("<i", value.size) + value.tobytes()
    return ARRAY + b"(K\x01" + python2(value.shape) + DTYPE + b"\x89" + content + b"tb"


@dataclass(frozen=True)
class Copies:
    """Writes copies of a data set below `folder`, and reads them as the engine does."""

    folder: Path
    dataset: str
    classes: int
    size: int = 32
    resize: int | None = None

    @property
    def reader(self) -> DatasetReader:
        reader: DatasetReader = load_registry().get("data set", self.dataset).value()
        return reader

    def write(self, files: Mapping[str, bytes], name: str = ".", order: Sequence[str] = ()) -> Path:
        """Write an archive if `name` ends as one does, else a folder; `order` names come first."""
        path = self.folder / name
        if path.suffix not in (".zip", ".tar", ".tgz", ".gz"):
            for file, content in files.items():
                (path / file).parent.mkdir(parents=True, exist_ok=True)
                (path / file).write_bytes(content)
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".zip":
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
                for file, content in files.items():
                    packed.writestr(file, content)
            return path
        with tarfile.open(path, "w" if path.suffix == ".tar" else "w:gz") as archive:
            for file in dict.fromkeys([*order, *files]):
                info = tarfile.TarInfo(file)
                info.size = len(files[file])
                archive.addfile(info, io.BytesIO(files[file]))
        return path

    def request(self, classes: int | None = None, options: Any = None, **size: int) -> ReadRequest:
        sizes = {"size": self.size, "resize": self.resize} | size
        spec = ImageSpec(**sizes, mean=(0.5,) * 3, std=(0.25,) * 3)
        return ReadRequest(self.classes if classes is None else classes, spec, options or {})

    def find(self, *roots: Path, digest: Digester = file_digest) -> Source:
        return self.reader.find(roots, digest)

    def index(self, *roots: Path, **asked: Any) -> DatasetIndex:
        return self.reader.index(self.find(*roots), self.request(**asked))

    def images(self, root: Path, items: Iterable[Item], **size: int) -> list[Pixels | DataError]:
        found = self.reader.images(self.find(root), tuple(items), self.request(**size))
        return list(found)

    def refusal(self, *roots: Path, classes: int | None = None) -> str:
        with pytest.raises(DataError) as caught:
            self.index(*roots, classes=classes)
        return str(caught.value)

    def run(self, protocol: str, **options: Any) -> fscil_bench.StoredRun:
        """Run NCM on it for one epoch, with results and cache below the folder."""
        options["overrides"] = {"epochs": 1, "milestones": ()} | options.get("overrides", {})
        places = {"results": self.folder / "results", "cache": self.folder / "cache"}
        return fscil_bench.run("ncm", protocol, **(places | options))


@pytest.fixture
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> Copies:
    """Return copies of the module's `DATASET`: its name, classes, size of images, and `resize`."""
    return Copies(tmp_path, *request.module.DATASET)


@pytest.fixture
def python2_pickle() -> Callable[[Any], bytes]:
    """Return a function that pickles dictionaries, lists, text, numbers and uint8 arrays."""
    return lambda value: b"\x80\x02" + python2(value) + b"."


@pytest.fixture
def harm(tmp_path: Path) -> Path:
    """Return the file that the pickle `harmful` creates if it has its way."""
    return tmp_path / "harm"


@pytest.fixture
def harmful(harm: Path) -> bytes:
    """Return a pickle that opens a file for writing while it is read."""

    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return open, (str(harm), "w")

    return pickle.dumps({"data": Harmful()}, protocol=2)
