from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fscil_bench.cli.app import app
from fscil_bench.data.listing import dataset_reader, protocol_of
from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import load_protocol

TOY = Path(__file__).parents[1] / "toy"
WITH_TOY = [str(TOY / "toy.toml"), "--plugin", str(TOY / "toy_reader.py")]
ARCHIVE = "tiny-imagenet-200.zip"


def call(folder: Path, *words: str) -> Result:
    environment = {
        "FSCIL_BENCH_CACHE": str(folder / "cache"),
        "FSCIL_BENCH_DATA": str(folder / "data"),
    }
    return CliRunner().invoke(app, ["data", *words], env=environment)


def output(folder: Path, *words: str) -> str:
    """Return what a command prints that succeeds."""
    done = call(folder, *words)
    assert done.exit_code == 0, done.output
    return done.output


def failure(folder: Path, *words: str, code: int = 1) -> str:
    """Return what a command prints that fails, in one line."""
    done = call(folder, *words)
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def archive(folder: Path) -> Path:
    """Write an archive with the name and marks of Tiny-ImageNet, which has no images."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ARCHIVE
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("tiny-imagenet-200/wnids.txt", "n01443537\n")
        made.writestr("tiny-imagenet-200/val/val_annotations.txt", "")
    return path


SMALL = ["--way", "1", "--shot", "2", "--base", "2"]


def images(root: Path, classes: Sequence[str] = ("ant", "bee", "cow")) -> Path:
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(6):
            Image.new("RGB", (20, 20), (40 * number, 0, 0)).save(root / name / f"{number}.png")
    return root


def test_list_says_what_is_there_and_leaves_out_what_reads_anything(tmp_path: Path) -> None:
    path = archive(tmp_path / "data")
    listed = output(tmp_path, "list")
    rows = {line.split()[0]: line for line in listed.splitlines()}
    assert rows["tiny_imagenet"].split(maxsplit=1)[1] == f"{path}  0.0 MiB"
    assert rows["glyphs"].endswith("drawn by the program, needs no data")
    looked = f"looked in {tmp_path / 'data'}, data"
    assert rows["cifar100"].endswith(looked), "without the advice how to get it"
    assert "folder" not in rows
    assert output(tmp_path, "list") == listed


def test_list_works_where_nothing_can_be_remembered(tmp_path: Path) -> None:
    path = archive(tmp_path / "data")
    (tmp_path / "cache").write_text("a file where the cache should be")
    assert f"{path}  0.0 MiB" in output(tmp_path, "list")


@pytest.mark.parametrize(
    ("name", "dataset"),
    [("cifar100", "cifar100"), ("cifar100_fact", "cifar100"), ("tiny_imagenet100", None)],
)
def test_a_protocols_name_stands_for_its_data_set(name: str, dataset: str | None) -> None:
    assert dataset_reader(load_registry(), name).name == (dataset or "tiny_imagenet")


def test_a_protocols_file_stands_for_its_data_set(tmp_path: Path) -> None:
    checked = output(tmp_path, "check", *WITH_TOY)
    assert "data set        toy" in checked
    assert "published shots 18, each of the class that it is listed for" in checked
    drawn = "data set 'toy' cannot be fetched: drawn by the program, needs no data"
    assert drawn in failure(tmp_path, "get", *WITH_TOY)


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
    text = failure(tmp_path, command, "tiny_imagnet", code=2)
    assert "unknown data set or protocol 'tiny_imagnet'; did you mean 'tiny_imagenet' or" in text
    failure(tmp_path, command, "none.toml", code=2)
    path = tmp_path / "mine.toml"
    path.write_text((TOY / "toy.toml").read_text().replace('dataset = "toy"', 'dataset = "glyps"'))
    text = failure(tmp_path, command, str(path), code=2)
    assert "unknown data set 'glyps'; did you mean 'glyphs'?" in text
    assert not (tmp_path / "cache").exists()


def test_two_protocols_of_one_name_are_refused_with_both_files(tmp_path: Path) -> None:
    registry = load_registry()
    builtin, copy = registry.get("protocol", "glyphs").file, tmp_path / "copy.toml"
    copy.write_text(builtin.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(UsageError, match=rf"{builtin} \(built in\) and {copy} \(package mine\);"):
        registry.add_protocols(tmp_path, "package mine")


def test_get_takes_a_local_copy_for_a_protocols_data_set(tmp_path: Path) -> None:
    given, target = archive(tmp_path / "given"), tmp_path / "data" / ARCHIVE
    got = output(tmp_path, "get", "tiny_imagenet100", "--from", str(given))
    assert got == f"tiny_imagenet: {target}\n"
    assert target.read_bytes() == given.read_bytes()
    refused = f"{given}: data set 'glyphs' is drawn by the program and needs no data"
    assert refused in failure(tmp_path, "get", "glyphs", "--from", str(given))
    assert list(target.parent.iterdir()) == [target]


def test_scan_writes_a_protocol_once_it_is_whole(tmp_path: Path) -> None:
    root, out = images(tmp_path / "animals"), tmp_path / "new" / "my.toml"
    words = ["scan", str(root), *SMALL, "--out", str(out)]
    whole = f"its data lie elsewhere, so that it names their whole path, {root}"
    assert output(tmp_path, *words) == f"wrote {out}; {whole}\n"
    assert load_protocol(out).classes == 3
    before = out.read_text()
    assert before == output(tmp_path, *words[:-2]), "what is printed without --out"

    assert f"--out {out}: is there already; --force" in failure(tmp_path, *words, code=2)
    images(root, ["dog"])
    assert out.read_text() == before
    output(tmp_path, *words, "--force")
    assert load_protocol(out).classes == 4
    assert sorted(out.parent.iterdir()) == [out], "no temporary files are left"


def test_scan_says_which_classes_fill_no_session(tmp_path: Path) -> None:
    root = images(tmp_path / "animals", ["ant", "bee", "cat", "dog", "elk"])
    told = "1 of 5 classes fill no session of 2 and are not used: "
    shape = ["--way", "2", "--shot", "1", "--base", "2"]
    assert f"{told}'elk'; with" in output(tmp_path, "scan", str(root), *shape)
    labels = np.repeat(np.arange(5), 3)
    features = np.random.default_rng(0).normal(size=(15, 4)).astype(np.float32)
    arrays = {f"{half}_labels": labels for half in ("train", "test")}
    arrays |= {f"{half}_features": features for half in ("train", "test")}
    np.savez(tmp_path / "f.npz", **arrays)
    words = ["scan", "--features", str(tmp_path / "f.npz"), *shape]
    assert f"{told}'4'; with" in output(tmp_path, *words)
    assert "not used" not in output(tmp_path, *words, "--way", "3")


@pytest.mark.parametrize(("place", "named"), [("my.toml", "animals"), ("animals/my.toml", ".")])
def test_a_protocol_moves_with_data_that_lie_beside_or_below_it(
    tmp_path: Path, place: str, named: str
) -> None:
    home, moved = tmp_path / "home", tmp_path / "moved"
    root = images(home / "animals")
    assert output(tmp_path, "scan", str(root), *SMALL, "--out", str(home / place)) == (
        f"wrote {home / place}\n"
    )
    assert load_protocol(home / place).data == named
    home.rename(moved)
    assert "classes         3" in output(tmp_path, "check", str(moved / place))


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
    assert expected in failure(tmp_path, "scan", str(root), "--base", "2", *words, code=code)
    assert list(Path().iterdir()) == []


def test_a_broken_image_is_listed_by_check_and_may_be_skipped(tmp_path: Path) -> None:
    root, out = images(tmp_path / "animals"), tmp_path / "my.toml"
    output(tmp_path, "scan", str(root), *SMALL, "--out", str(out))
    Image.new("RGB", (1, 60_000)).save(root / "ant" / "sliver.png")
    long = f"{root}/ant/sliver.png: refused, 1×60000 pixels are absurd"
    assert long in failure(tmp_path, "check", str(out))
    skipped = output(tmp_path, "check", str(out), "--skip-broken")
    assert "skipped         1 broken images" in skipped
    assert skipped.count("fingerprint") == 1


def test_check_finds_a_cache_that_is_damaged_and_clear_removes_what_list_shows(
    tmp_path: Path,
) -> None:
    first = output(tmp_path, "check", *WITH_TOY)
    assert output(tmp_path, "check", *WITH_TOY) == first
    (folder,) = (tmp_path / "cache/images").iterdir()
    pixels = folder / "train.bin"
    pixels.write_bytes(bytes(pixels.stat().st_size))
    text = failure(tmp_path, "check", *WITH_TOY)
    assert "the image cache is damaged" in text
    assert f"fscil-bench data clear {folder}" in text
    assert str(folder) in output(tmp_path, "list")
    failure(tmp_path, "clear", "elsewhere", code=2)
    assert output(tmp_path, "clear", str(folder)) == f"removed {folder}\n"
    assert not folder.exists()
    assert output(tmp_path, "check", *WITH_TOY) == first


def killed(folder: Path) -> list[Path]:
    """Write what a decode and a write of digests leave that are killed at once."""
    decoded = "images/.toy-0123456789abcdef.ab_d3fgh"
    names = (decoded, "images/.a.old.fscil-abcdefgh", ".digests.json.k9abcde_")
    left = [folder / "cache" / name for name in names]
    left[0].mkdir(parents=True)
    left[1].mkdir()
    (left[0] / "train.bin").write_bytes(bytes(2**20))
    left[2].write_text("{")
    return left


@pytest.mark.parametrize("words", [["clear"], ["clear", "leftovers"]])
def test_what_interrupted_work_left_is_counted_and_cleared(
    tmp_path: Path, words: list[str]
) -> None:
    left = killed(tmp_path)
    output(tmp_path, "check", *WITH_TOY)
    assert all(path.exists() for path in left), "another process may still be writing them"
    last = output(tmp_path, "list").splitlines()[-1]
    counted = f"leftovers        3 files or folders in {tmp_path / 'cache'} and results, left over"
    assert last.startswith(counted)
    assert last.endswith("1.0 MiB")
    foreign = tmp_path / "cache/images/.gitignore"
    foreign.write_text("*")
    whole = [path for path in (tmp_path / "cache/images").iterdir() if path.name[0] != "."]
    output(tmp_path, *words)
    assert not any(path.exists() for path in left)
    assert [path.exists() for path in whole] == [len(words) == 2]
    assert foreign.exists()
    assert "leftovers" not in output(tmp_path, "list")
