"""What `data clear` removes, and what it leaves; the rest is in tests/data/test_data_cli.py."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fscil_bench.cli.app import app
from fscil_bench.store.caches import (
    TAG,
    cached,
    changed_file,
    foreign,
    left_over,
    remembered_digests,
)
from fscil_bench.store.files import replaced_file, replaced_folder

OWN = (
    "images/cifar100-0123456789abcdef",
    "features/0123456789abcdef-0123456789ab-plain-train",
    "features/0123456789abcdef-0123456789ab-rot90-mirrored-test",
    "pretrained/0123456789abcdef",
    "precision/0123456789abcdef",
)
FILES = {
    "images": ["meta.json", "train.bin", "test_labels.npy"],
    "features": ["done.json", "features.npy"],
    "pretrained": ["tensors.safetensors", ".tensors.safetensors.abcdefgh"],
    "precision": ["measured.json"],
}
FOREIGN = (
    "images/flowers-0123456789abcdef",
    "images/holiday",
    "images/cifar100-0123456789abcdeg",
    "features/notes",
    "pretrained/mine",
    ".git/objects",
    "tests/engine",
    ".ssh/keys",
    "runs/0123456789abcdef",
)


def clear(cache: Path, *words: str, **variables: str) -> Result:
    return CliRunner().invoke(app, ["data", "clear", "--cache", str(cache), *words], env=variables)


def made(root: Path, names: tuple[str, ...]) -> list[Path]:
    for name in names:
        (root / name).mkdir(parents=True)
        for file in FILES.get(name.partition("/")[0] if name in OWN else "", ["file"]):
            (root / name / file).write_text("content")
    return [root / name for name in names]


def marked(root: Path) -> Path:
    """Return a folder with the mark that a digest to be remembered brings."""
    root.mkdir(exist_ok=True)
    (root / "archive.zip").write_bytes(b"1")
    remembered_digests(root, [root / "archive.zip"])
    assert (root / TAG).read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    return root


def test_clear_removes_its_own_and_names_what_else_is_there(tmp_path: Path) -> None:
    cache = marked(tmp_path / "cache")
    own, others = made(cache, OWN), made(cache, FOREIGN)
    (cache / "images" / "linked-0123456789abcdef").symlink_to(tmp_path)
    done = clear(cache, FSCIL_BENCH_RESULTS=str(tmp_path / "results"))
    assert done.exit_code == 0, done.output
    assert [path.exists() for path in own] == [False] * len(own)
    assert all((path / "file").read_text() == "content" for path in others)
    for path in (*others[:5], cache / "images" / "linked-0123456789abcdef"):
        assert f"left    {path}, which fscil-bench did not make" in done.output
    assert clear(cache, str(others[0])).exit_code == 2
    assert others[0].exists()


def test_what_a_run_caches_is_known_to_clear(new_toy: Any, tmp_path: Path) -> None:
    few = {"epochs": 1, "unit_steps": 2, "unit_classes": 2}
    new_toy.run("ldc", params=few, cache=tmp_path, results=tmp_path / "r")
    kinds = {path.parent.name for path, _ in cached(tmp_path)}
    assert kinds >= {"images", "features", "pretrained"}
    assert list(foreign(tmp_path)) == []
    assert clear(tmp_path, "--results", str(tmp_path / "r")).exit_code == 0
    left = {path.name for path in tmp_path.rglob("*") if path.parent.parent == tmp_path}
    assert left <= {"runs", "representations", "toy"}, left


@pytest.mark.parametrize("tag", [None, "", "Signature: 8a477f597d28d172789f06886806bc55\n# pip\n"])
def test_clear_touches_nothing_in_what_is_no_cache(tmp_path: Path, tag: str | None) -> None:
    kept = made(tmp_path, (*OWN, *FOREIGN))
    (tmp_path / "images" / ".x.fscil-abcdefgh").mkdir()
    if tag is not None:
        (tmp_path / TAG).write_text(tag)
    before = sorted(tmp_path.rglob("*"))
    for words in ([], [str(kept[0])], ["leftovers"]):
        done = clear(tmp_path, *words)
        assert done.exit_code == 2
        assert f"not a cache of fscil-bench, it has no {TAG} of it" in " ".join(done.output.split())
    assert sorted(tmp_path.rglob("*")) == before


def test_an_empty_name_is_not_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = marked(tmp_path / "here")
    kept = made(here, OWN)
    monkeypatch.chdir(here)
    elsewhere = str(tmp_path / "elsewhere")
    variables = {"FSCIL_BENCH_CACHE": elsewhere, "FSCIL_BENCH_RESULTS": elsewhere}
    done = CliRunner().invoke(app, ["data", "clear", "--cache", ""], env=variables)
    assert done.exit_code == 0, done.output
    assert all(path.exists() for path in kept)


def test_what_killed_writes_left_in_results_is_found(tmp_path: Path) -> None:
    cache, results = marked(tmp_path / "cache"), tmp_path / "results"
    names = (
        "representations/0123/.checkpoint.safetensors.ab_d3fgh",
        "representations/0123/.weights.safetensors.abcdefgh",
        "runs/cub200/ncm/.0123456789abcdef.old.abcdefgh",
        "tuned/cub200/cosine-1/.ncm.json.fscil-abcdefgh",
        "..writable.fscil-abcdefgh",
    )
    others = ("reports/all/site/.notes.abcdefgh", "runs/a/b/.my.settings", "runs/a/b/.gitignore")
    for name in (*names, "representations/0123/checkpoint.safetensors", *others):
        (results / name).parent.mkdir(parents=True, exist_ok=True)
        (results / name).write_bytes(bytes(100))
    assert {path for path, _ in left_over(cache, results)} == {results / name for name in names}
    done = clear(cache, "leftovers", "--results", str(results))
    assert done.exit_code == 0, done.output
    kept = sorted(path.name for path in results.rglob("*") if path.is_file())
    assert kept == [".gitignore", ".my.settings", ".notes.abcdefgh", "checkpoint.safetensors"]


def test_temporary_names_are_known_as_such(tmp_path: Path) -> None:
    cache, results = marked(tmp_path / "cache"), tmp_path / "results"
    place = results / "runs" / "cub200" / "ncm"
    with replaced_folder(place / "0123") as folder, replaced_file(place / "a.txt") as file:
        found = {path for path, _ in left_over(cache, results)}
        assert len(found) == 3
        assert {folder, file} < found


def test_a_file_is_read_again_only_when_it_has_changed(tmp_path: Path) -> None:
    folder, cache = tmp_path / "folder", tmp_path / "cache"
    folder.mkdir()
    (folder / "a.npy").write_bytes(b"one")
    written = {"a.npy": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"}
    assert changed_file(cache, folder, written) is None, "that is the SHA-256 of `one`"
    assert changed_file(cache, folder, {"a.npy": "0" * 64}) == "a.npy is not as it was written"
    (folder / "a.npy").write_bytes(b"two")
    assert changed_file(cache, folder, written) == "a.npy is not as it was written"
    shutil.rmtree(cache)
    (folder / "a.npy").write_bytes(b"one")
    assert changed_file(cache, folder, written) is None
