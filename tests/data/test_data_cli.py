from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fscil_bench.cli.app import app
from fscil_bench.data.listing import dataset_reader, protocol_of
from fscil_bench.data.reader import file_digest
from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import load_protocol

TOY = Path(__file__).parents[1] / "toy"
WITH_TOY = ["--plugin", str(TOY / "toy_reader.py")]


def call(folder: Path, *words: str) -> Result:
    environment = {
        "FSCIL_BENCH_CACHE": str(folder / "cache"),
        "FSCIL_BENCH_DATA": str(folder / "data"),
    }
    return CliRunner().invoke(app, ["data", *words], env=environment)


def archive(folder: Path) -> Path:
    """Write an archive with the name and marks of Tiny-ImageNet, which has no images."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("tiny-imagenet-200/wnids.txt", "n01443537\n")
        made.writestr("tiny-imagenet-200/val/val_annotations.txt", "")
    return path


def images(root: Path, classes: Sequence[str] = ("ant", "bee", "cow")) -> Path:
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(6):
            Image.new("RGB", (20, 20), (40 * number, 0, 0)).save(root / name / f"{number}.png")
    return root


def test_list_says_what_is_there_and_how_big_and_leaves_out_what_reads_anything(
    tmp_path: Path,
) -> None:
    path = archive(tmp_path / "data")
    listed = call(tmp_path, "list")
    assert listed.exit_code == 0, listed.output
    rows = {line.split()[0]: line for line in listed.output.splitlines()}
    assert rows["tiny_imagenet"].split(maxsplit=1)[1] == f"{path}  0.0 MiB"
    assert rows["glyphs"].endswith("drawn by the program, needs no data")
    looked = f"looked in {tmp_path / 'data'}, data"
    assert rows["cifar100"].endswith(looked), "without the advice how to get it"
    assert "folder" not in rows


def test_list_remembers_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive(tmp_path / "data")
    asked = []

    def counted(path: Path, algorithm: str) -> str:
        asked.append(path.name)
        return file_digest(path, algorithm)

    monkeypatch.setattr("fscil_bench.store.caches.file_digest", counted)
    outputs = [call(tmp_path, "list").output for _ in range(3)]
    assert asked == ["tiny-imagenet-200.zip"]
    assert outputs[0] == outputs[2]


def test_list_works_where_nothing_can_be_remembered(tmp_path: Path) -> None:
    path = archive(tmp_path / "data")
    (tmp_path / "cache").write_text("a file where the cache should be")
    assert f"{path}  0.0 MiB" in call(tmp_path, "list").output


@pytest.mark.parametrize(
    ("name", "dataset"),
    [("cifar100", "cifar100"), ("cifar100_fact", "cifar100"), ("tiny_imagenet100", None)],
)
def test_a_protocols_name_stands_for_its_data_set(name: str, dataset: str | None) -> None:
    assert dataset_reader(load_registry(), name).name == (dataset or "tiny_imagenet")


def test_a_protocols_file_stands_for_its_data_set(tmp_path: Path) -> None:
    done = call(tmp_path, "check", str(TOY / "toy.toml"), *WITH_TOY)
    assert done.exit_code == 0, done.output
    assert "data set        toy" in done.output
    assert "published shots 18, each of the class that it is listed for" in done.output
    got = call(tmp_path, "get", str(TOY / "toy.toml"), *WITH_TOY)
    assert got.exit_code == 1
    assert "data set 'toy' cannot be fetched: drawn by the program, needs no data" in got.output


def test_a_data_sets_name_stands_for_the_protocol_with_most_of_its_classes() -> None:
    registry = load_registry()
    assert protocol_of(registry, "tiny_imagenet")[0].name == "tiny_imagenet200"
    assert protocol_of(registry, "tiny_imagenet100")[0].name == "tiny_imagenet100"
    with pytest.raises(UsageError, match="no known protocol reads the data set 'folder'"):
        protocol_of(registry, "folder")


@pytest.mark.parametrize("command", ["get", "check"])
def test_an_unknown_name_is_answered_with_the_nearest_of_both_kinds(
    tmp_path: Path, command: str
) -> None:
    done = call(tmp_path, command, "tiny_imagnet")
    assert done.exit_code == 2
    text = " ".join(done.output.split())
    assert "unknown data set or protocol 'tiny_imagnet'; did you mean 'tiny_imagenet' or" in text
    assert "'tiny_imagenet200'" in text
    assert call(tmp_path, command, "none.toml").exit_code == 2


def test_a_protocol_whose_reader_does_not_exist_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((TOY / "toy.toml").read_text().replace('dataset = "toy"', 'dataset = "glyps"'))
    for command in ("check", "get"):
        done = call(tmp_path, command, str(path))
        assert done.exit_code == 2
        assert "unknown data set 'glyps'; did you mean 'glyphs'?" in done.output
    assert not (tmp_path / "cache").exists()


def test_two_protocols_of_one_name_are_refused_with_both_files(tmp_path: Path) -> None:
    registry = load_registry()
    builtin = registry.get("protocol", "glyphs").file
    copy = tmp_path / "copy.toml"
    copy.write_text(builtin.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        registry.add_protocols(tmp_path, "package mine")
    assert str(caught.value) == (
        f"two plug-ins define the protocol 'glyphs': {builtin} (built in) and {copy} "
        "(package mine); rename one of them"
    )


def test_get_takes_a_local_copy_for_a_protocols_data_set(tmp_path: Path) -> None:
    given = archive(tmp_path / "given")
    done = call(tmp_path, "get", "tiny_imagenet100", "--from", str(given))
    assert done.exit_code == 0, done.output
    target = tmp_path / "data" / given.name
    assert done.output == f"tiny_imagenet: {target}\n"
    assert target.read_bytes() == given.read_bytes()


def test_scan_writes_a_protocol_once_it_is_whole(tmp_path: Path) -> None:
    root, out = images(tmp_path / "animals"), tmp_path / "new" / "my.toml"
    words = ["scan", str(root), "--way", "1", "--shot", "2", "--base", "2", "--out", str(out)]
    done = call(tmp_path, *words)
    assert done.exit_code == 0, done.output
    assert done.output == f"wrote {out}\n"
    assert load_protocol(out).classes == 3
    assert out.read_text() == call(tmp_path, *words[:-2]).output, "what is printed without --out"

    before = out.read_text()
    again = call(tmp_path, *words)
    assert again.exit_code == 2
    assert f"--out {out}: is there already; --force replaces it" in again.output
    images(root, ["dog"])
    assert out.read_text() == before
    assert call(tmp_path, *words, "--force").exit_code == 0
    assert load_protocol(out).classes == 4
    assert sorted(out.parent.iterdir()) == [out], "no temporary files are left"


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--way", "9", "--out", "my.toml"], 1, "too few classes for one session"),
        (["--out", "my.txt"], 2, "a protocol's file must end in .toml"),
        (["--force"], 2, "--force goes with --out FILE"),
    ],
)
def test_scan_that_fails_leaves_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    expected: str,
) -> None:
    root = images(tmp_path / "animals")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    done = call(tmp_path, "scan", str(root), "--base", "2", *words)
    assert done.exit_code == code
    assert expected in done.output
    assert list(Path().iterdir()) == []


def test_a_broken_image_is_listed_by_check_and_may_be_skipped(tmp_path: Path) -> None:
    root, out = images(tmp_path / "animals"), tmp_path / "my.toml"
    call(tmp_path, "scan", str(root), "--way", "1", "--shot", "2", "--base", "2", "--out", str(out))
    sliver = io.BytesIO()
    Image.new("RGB", (1, 60_000)).save(sliver, "PNG")
    (root / "ant" / "sliver.png").write_bytes(sliver.getvalue())
    done = call(tmp_path, "check", str(out))
    assert done.exit_code == 1
    assert f"{root}/ant/sliver.png: refused, 1×60000 pixels are absurd" in done.output
    skipped = call(tmp_path, "check", str(out), "--skip-broken")
    assert "skipped         1 broken images" in skipped.output
    assert skipped.output.count("fingerprint") == 1


def test_clear_removes_what_list_shows(tmp_path: Path) -> None:
    call(tmp_path, "check", str(TOY / "toy.toml"), *WITH_TOY)
    (folder,) = (tmp_path / "cache/images").iterdir()
    assert str(folder) in call(tmp_path, "list").output
    assert call(tmp_path, "clear", "elsewhere").exit_code == 2
    assert call(tmp_path, "clear", str(folder)).output == f"removed {folder}\n"
    assert not folder.exists()


def test_check_finds_a_cache_that_is_damaged_without_a_change_of_size(tmp_path: Path) -> None:
    words = ["check", str(TOY / "toy.toml"), *WITH_TOY]
    first = call(tmp_path, *words)
    assert call(tmp_path, *words).output == first.output
    (folder,) = (tmp_path / "cache/images").iterdir()
    pixels = folder / "train.bin"
    pixels.write_bytes(bytes(pixels.stat().st_size))
    done = call(tmp_path, *words)
    assert done.exit_code == 1
    assert "the image cache is damaged" in done.output
    assert f"fscil-bench data clear {folder}" in done.output
    assert call(tmp_path, "clear", str(folder)).exit_code == 0
    assert call(tmp_path, *words).output == first.output


def killed(folder: Path) -> list[Path]:
    """Write what a decode and a write of digests leave that are killed at once."""
    left = [
        folder / "cache/images/.toy-0123.ab_d3fgh",
        folder / "cache/images/.toy-0123.old.abcdefgh",
    ]
    for path in left:
        path.mkdir(parents=True)
    (left[0] / "train.bin").write_bytes(bytes(2**20))
    left.append(folder / "cache/.digests.json.k9abcde_")
    left[-1].write_text("{")
    return left


def test_list_counts_what_interrupted_work_left(tmp_path: Path) -> None:
    assert "leftovers" not in call(tmp_path, "list").output
    killed(tmp_path)
    last = call(tmp_path, "list").output.splitlines()[-1]
    assert last.startswith(
        f"leftovers        3 files or folders in {tmp_path / 'cache'} and results, left over"
    )
    assert last.endswith("1.0 MiB")


@pytest.mark.parametrize("words", [["clear"], ["clear", "leftovers"]])
def test_clear_removes_what_interrupted_work_left(tmp_path: Path, words: list[str]) -> None:
    left = killed(tmp_path)
    call(tmp_path, "check", str(TOY / "toy.toml"), *WITH_TOY)
    assert all(path.exists() for path in left), "another process may still be writing them"
    foreign = tmp_path / "cache/images/.gitignore"
    foreign.write_text("*")
    whole = [path for path in (tmp_path / "cache/images").iterdir() if path.name[0] != "."]
    done = call(tmp_path, *words)
    assert done.exit_code == 0, done.output
    assert not any(path.exists() for path in left)
    assert [path.exists() for path in whole] == [len(words) == 2]
    assert foreign.exists()
