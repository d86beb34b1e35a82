"""Downloads from a server on this machine: whole, broken, missing, or a web page."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fscil_bench.data.downloads import fetch, take, verify
from fscil_bench.data.reader import (
    DatasetIndex,
    DatasetReader,
    Digester,
    Download,
    Pixels,
    Source,
    file_digest,
)
from fscil_bench.errors import DataError
from fscil_bench.progress import Silent

CONTENT = b"the published archive" * 100
MD5 = hashlib.md5(CONTENT).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.zip").write_bytes(CONTENT)
    (folder / "page.zip").write_bytes(b"<!DOCTYPE html><html>quota exceeded</html>")
    (folder / "cut.zip").write_bytes(CONTENT[:50])
    handler = partial(Quiet, directory=str(folder))
    running = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()


def download(*addresses: str) -> Download:
    return Download("data.zip", addresses, f"md5:{MD5}", len(CONTENT))


def test_a_whole_file_arrives_under_its_name(server: str, tmp_path: Path) -> None:
    mirrors = download(f"{server}/gone.zip", f"{server}/data.zip")
    path = fetch(mirrors, tmp_path / "to", Silent())
    assert path == tmp_path / "to" / "data.zip"
    assert path.read_bytes() == CONTENT
    assert verify(path, download()) is None
    path.write_bytes(CONTENT[:100])
    assert fetch(mirrors, path.parent, Silent()).read_bytes() == CONTENT, "fetched again"


@pytest.mark.parametrize(
    ("name", "reason"),
    [("page.zip", "what came is a web page"), ("cut.zip", "another digest"), ("gone.zip", "404")],
)
def test_what_is_not_the_file_is_never_kept(
    server: str, tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        fetch(download(f"{server}/{name}"), tmp_path / "to", Silent())
    assert "--from FILE" in str(caught.value)
    assert list((tmp_path / "to").glob("*")) == []


def test_a_partial_file_offline_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data.zip").write_bytes(CONTENT[:100])
    assert verify(tmp_path / "data.zip", download()) == f"100 bytes instead of {len(CONTENT)}"
    with pytest.raises(DataError, match=r"could not be fetched: .*no connection \(\[Errno \d+\]"):
        fetch(download("http://127.0.0.1:9/data.zip"), tmp_path, Silent())


class Reader(DatasetReader):
    name = "local"

    def find(self, roots: Sequence[Path], digest: Digester = file_digest) -> Source:
        del digest
        for root in roots:
            if root.is_file() and root.read_bytes().startswith(b"the published"):
                changed = None if root.read_bytes() == CONTENT else "another digest"
                return Source(root, "d", changed)
            if (root / "inner").is_dir():
                return Source(root / "inner", "d")
        raise DataError("not what I read")

    def index(self, *_: object) -> DatasetIndex:
        raise NotImplementedError

    def images(self, *_: object) -> Iterator[Pixels]:
        raise NotImplementedError


def test_a_local_archive_or_folder_is_taken(tmp_path: Path) -> None:
    given = tmp_path / "data.zip"
    given.write_bytes(CONTENT)
    assert take(Reader(), given, tmp_path / "to", False).read_bytes() == CONTENT
    (tmp_path / "given/inner").mkdir(parents=True)
    (tmp_path / "given/inner/a.txt").write_text("a")
    assert (take(Reader(), tmp_path / "given", tmp_path / "to", False) / "a.txt").exists()


def test_what_is_in_the_place_of_a_copy_is_kept(tmp_path: Path) -> None:
    given, target = tmp_path / "data.zip", tmp_path / "to" / "data.zip"
    given.write_bytes(CONTENT)
    assert take(Reader(), given, tmp_path / "to", False) == target
    assert take(Reader(), given, tmp_path / "to", False) == target, "the same once more"
    target.write_text("mine")
    with pytest.raises(DataError, match="is there already, and is kept; move it away first"):
        take(Reader(), given, tmp_path / "to", False)
    (tmp_path / "given/inner").mkdir(parents=True)
    (tmp_path / "to/local").mkdir()
    (tmp_path / "to/local/thesis.tex").write_text("mine")
    with pytest.raises(DataError, match="local: is there already"):
        take(Reader(), tmp_path / "given", tmp_path / "to", False)
    assert (target.read_text(), (tmp_path / "to/local/thesis.tex").read_text()) == ("mine", "mine")
    with pytest.raises(DataError, match="cannot be copied into itself"):
        take(Reader(), tmp_path / "given", tmp_path / "given/inner/data", False)


def test_a_copy_that_is_not_the_published_one_must_be_allowed(tmp_path: Path) -> None:
    given, target = tmp_path / "data.zip", tmp_path / "to"
    with pytest.raises(DataError, match="no such file"):
        take(Reader(), given, target, True)
    given.write_bytes(b"something else")
    with pytest.raises(DataError, match="not what I read"):
        take(Reader(), given, target, True)
    given.write_bytes(CONTENT + b"!")
    with pytest.raises(DataError, match="another digest; --unofficial-data"):
        take(Reader(), given, target, False)
    assert not target.exists()
    assert take(Reader(), given, target, True).exists()
