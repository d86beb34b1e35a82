"""What is no archive, damaged, or means harm is refused by every reader that takes archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
import zipfile
from pathlib import Path

import pytest

from fscil_bench.data.reader import ReadRequest
from fscil_bench.errors import DataError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import ImageSpec

TARS = [
    ("cifar100", "cifar-100-python.tar.gz"),
    ("cub200", "CUB_200_2011.tgz"),
    ("mini_imagenet", "miniimagenet.tar"),
]
ZIPS = [("mini_imagenet", "miniimagenet.zip"), ("tiny_imagenet", "tiny-imagenet-200.zip")]
NOISE = random.Random(0).randbytes(5000)


def refusal(dataset: str, path: Path) -> str:
    reader = load_registry().get("data set", dataset).value()
    asked = ReadRequest(4, ImageSpec(size=8, mean=(0.5,) * 3, std=(1,) * 3))
    with pytest.raises(DataError) as caught:
        reader.index(reader.find([path]), asked)
    return str(caught.value)


def tar(path: Path, first: bytes = b"") -> Path:
    """Write an archive of one file of noise, with a header before it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo("some/noise.bin")
        info.size = len(NOISE)
        archive.addfile(info, io.BytesIO(NOISE))
    content = first + buffer.getvalue()
    path.write_bytes(content if path.suffix == ".tar" else gzip.compress(content, mtime=0))
    return path


def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, link
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(("dataset", "name"), TARS)
@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (header("../../x"), "../../x: refused, the name leads out of the archive"),
        (header("images/../../../x"), "the name leads out of the archive"),
        (header("/etc/passwd"), "/etc/passwd: refused, the name leads out of the archive"),
        (header("..\\x"), "the name leads out of the archive"),
        (header("C:/x"), "C:/x: refused, the name leads out of the archive"),
        (header("a.jpg", tarfile.SYMTYPE, link="/etc/passwd"), "is a link (to '/etc/passwd')"),
        (header("a.jpg", tarfile.LNKTYPE, link="b.jpg"), "is a link (to 'b.jpg')"),
        (header("a.jpg", tarfile.CHRTYPE), "no plain file but a device"),
        (header("a.jpg", tarfile.FIFOTYPE), "no plain file but a device"),
        (header("a.jpg", size=10**10), "its declared size of 10000000000 bytes is absurd"),
        (header("long", tarfile.GNUTYPE_LONGNAME, 10**10), "a header: refused, its declared size"),
        (header("extended", tarfile.XHDTYPE, 10**10), "a header: refused, its declared size"),
    ],
)
def test_a_hostile_tar_archive_is_refused(
    tmp_path: Path, dataset: str, name: str, bad: bytes, problem: str
) -> None:
    path = tar(tmp_path / name, bad)
    text = refusal(dataset, path)
    assert text.startswith(f"{path}: ")
    assert "refused" in text
    assert problem in text
    assert list(tmp_path.iterdir()) == [path], "nothing is written"


@pytest.mark.parametrize("name", ["../../x.jpg", "/images/x.jpg"])
def test_members_that_lead_out_of_a_zip_archive_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "miniimagenet.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, b"")
    assert f"{name}: refused, the name leads out of the archive" in refusal("mini_imagenet", path)


@pytest.mark.parametrize(
    ("limit", "value", "problem"),
    [
        ("COUNT_LIMIT", 0, "refused, the archive has more than 0 members"),
        ("TOTAL_LIMIT", 4000, "refused, the archive unpacks to more than 4000 bytes"),
    ],
)
def test_a_tar_archive_of_absurd_extent_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, problem: str
) -> None:
    monkeypatch.setattr(f"fscil_bench.protocols._archives.tar.{limit}", value)
    assert problem in refusal("cub200", tar(tmp_path / "CUB_200_2011.tgz"))


NO_ARCHIVE = [
    (b"\n<!DOCTYPE html><html>404</html>", "not an archive, but a web page (32 bytes)"),
    (b"", "an empty file"),
]
NO_ZIP = [
    (b"PK\x03\x04" + bytes(96), "a zip archive that is cut short or damaged (100 bytes)"),
    (b"\x1f\x8b gzip", "not a zip archive (7 bytes)"),
]


@pytest.mark.parametrize(
    ("dataset", "name", "content", "expected"),
    [(*one, *bad) for one in [*TARS, *ZIPS] for bad in NO_ARCHIVE]
    + [(*one, *bad) for one in ZIPS for bad in NO_ZIP],
)
def test_a_file_that_is_no_archive_is_explained(
    tmp_path: Path, dataset: str, name: str, content: bytes, expected: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert refusal(dataset, path) == f"{path}: {expected}; fetch it again"


@pytest.mark.parametrize(("dataset", "name"), TARS[:2])
@pytest.mark.parametrize(
    "part", [b"PK\x03\x04 a zip", gzip.compress(b"no tar" * 99, mtime=0), 0.02, 0.999]
)
def test_a_damaged_tar_archive_is_named_with_size_and_digest(
    tmp_path: Path, dataset: str, name: str, part: bytes | float
) -> None:
    path = tar(tmp_path / name)
    whole = path.read_bytes()
    held = part if isinstance(part, bytes) else whole[: int(part * len(whole))]
    path.write_bytes(held)
    text = refusal(dataset, path)
    assert text.startswith(f"{path}: no whole tar archive (")
    assert f"it has {len(held)} bytes and MD5 {hashlib.md5(held).hexdigest()}" in text
    assert text.endswith("; fetch it again")
    flipped = bytearray(whole)
    flipped[3000] ^= 1
    path.write_bytes(flipped)
    assert "no whole tar archive (CRC check failed" in refusal(dataset, path)


@pytest.mark.parametrize("part", [0.3, 0.5])
def test_a_plain_tar_archive_cut_short_says_so(tmp_path: Path, part: float) -> None:
    path = tar(tmp_path / "miniimagenet.tar")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    assert "fetch it again" in refusal("mini_imagenet", path)
