"""Runs on features from a file: `--features FILE`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import fscil_bench as fb
from fscil_bench.cli.app import app
from fscil_bench.data.feature_file import read_feature_file
from fscil_bench.errors import DataError, UsageError
from fscil_bench.grids.graph import rows_of
from fscil_bench.options import Options
from fscil_bench.plugins.registry import load_registry
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.reporting.frame import results_frame
from fscil_bench.request import RunRequest
from fscil_bench.running.commands import command_for
from fscil_bench.running.feature_runs import lacking
from fscil_bench.running.workbench import Workbench
from fscil_bench.store.runs import Store

DOCS = Path(__file__).parents[2] / "docs" / "guides" / "features.md"


def settings(toy: Any, **options: Any) -> dict[str, Any]:
    known = toy.settings(**options)
    return {name: value for name, value in known.items() if value is not None}


@pytest.fixture(scope="module")
def exported(toy: Any) -> Path:
    """Return the features of a network that was trained here, as a file."""
    file = toy.folder / "exported.npz"
    chosen = settings(toy, protocol=None)
    fb.export_features(toy.toml, file, **chosen)
    return Path(file)


def call(toy: Any, *words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words), *toy.words()])


def failure(toy: Any, *words: object, code: int = 2) -> str:
    done = call(toy, *words)
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def own(toy: Any, folder: Path, **changes: str) -> Path:
    """Write a protocol like the toy's, on a data set that no machine has."""
    lines = Path(toy.toml).read_text(encoding="utf-8")
    for name, value in ({"dataset": "cub200", "name": "own"} | changes).items():
        lines = re.sub(
            rf"^{name} = .*$",
            f"{name} = {value if value[0].isdigit() else repr(value)}",
            lines,
            flags=re.M,
        )
    (folder / "own.toml").write_text(
        lines.replace("toy_shots.csv", str(toy.home / "toy_shots.csv")), encoding="utf-8"
    )
    return folder / "own.toml"


def test_every_method_on_features_predicts_from_the_file_what_it_does_from_the_network(
    tmp_path: Path,
) -> None:
    """Bit by bit; on few of the glyphs, which one epoch does not tell apart."""
    registry = load_registry()
    methods = [
        name
        for name in registry.names("method")
        if not lacking(registry.get("method", name).value.needs)
    ]
    assert {"ncm", "ldc", "free_lunch", "teen", "logistic"} <= set(methods)
    few = {"classes": 10, "base_classes": 6, "way": 2, "epochs": 1}
    places: dict[str, Any] = {"results": tmp_path / "results", "cache": tmp_path / "cache"}
    chosen = {"overrides": few, "precision": "fp32", **places}
    networks = fb.run(methods, "glyphs", **chosen)
    file = tmp_path / "exported.npz"
    fb.export_features("glyphs", file, **chosen)
    few = {name: value for name, value in few.items() if name != "epochs"}
    files = fb.run(methods, "glyphs", features=file, overrides=few, **places)
    for one, two in zip(networks, files, strict=True):
        assert np.array_equal(one.predictions, two.predictions), one.spec.method
        assert one.accuracies[-1] < 0.99, "a mistake in the features would not show"
        assert one.key != two.key and one.record.flags == two.record.flags
    assert files[0].spec.representation.backbone == "features"
    assert files[0].record.representation_log["features"].startswith("exported (sha256 ")


def test_a_precision_of_training_is_refused(toy: Any, exported: Path) -> None:
    with pytest.raises(UsageError, match="leave --precision out"):
        toy.run(features=exported, precision="bf16")


def test_a_seed_that_a_method_learns_from_base_data_with_stays(toy: Any, exported: Path) -> None:
    few = {"unit_steps": 3, "unit_classes": 2, "epochs": 1}
    runs = toy.run("ldc", features=exported, params=few, representation_seed="0-1")
    assert len({run.key for run in runs}) == 2


def test_runs_are_named_by_their_file(toy: Any, exported: Path) -> None:
    run = toy.run(features=exported)
    words = ["list", "runs", "--results", str(toy.folder / "results")]
    listed = CliRunner().invoke(app, words).output
    assert re.search(r"shot, features exported, \w+, seed 0, ", listed), listed
    assert "on toy, features exported, " in run._repr_html_()
    bench = Workbench.open(Options(**settings(toy, protocol=None, features=exported)))
    [row] = rows_of(bench, [RunRequest("ncm", toy.toml)])
    assert row.title((0, 1)) == "ncm on toy [features exported], seeds 0-1"
    command = command_for(run.spec, bench.registry)
    assert command.endswith("--features PATH/TO/exported"), command


@pytest.mark.parametrize("form", [".safetensors", ".pt", ".parquet"])
def test_the_form_of_a_file_is_in_no_key(
    toy: Any, exported: Path, tmp_path: Path, form: str
) -> None:
    if form == ".parquet":
        pytest.importorskip("pyarrow")
    file = tmp_path / f"exported{form}"
    fb.export_features(toy.toml, file, **settings(toy, protocol=None))
    assert toy.run(features=file).key == toy.run(features=exported).key


def test_the_name_and_the_content_of_a_file_are(toy: Any, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "other.npz").write_bytes(exported.read_bytes())
    with np.load(exported) as held:
        changed = dict(held)
    changed["test_features"] = changed["test_features"] + 1
    np.savez(tmp_path / "exported.npz", **changed)
    keys = {
        toy.run(features=f).key
        for f in (exported, tmp_path / "other.npz", tmp_path / "exported.npz")
    }
    assert len(keys) == 3


def test_all_frozen_leaves_out_what_does_not_run(toy: Any, exported: Path) -> None:
    done = call(toy, "run", "--method", "all-frozen", "--features", exported)
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "cec is left out, as features from a file lack the views rot180, rot270, rot90" in text
    assert "fact is left out, as features from a file lack the tensors " in text
    assert "exported: train: matched with toy by name" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--method", "finetune"], "method 'finetune' needs images"),
        (["--method", "cec"], "method 'cec' needs the view"),
        (["--method", "fact"], "method 'fact' needs the tensors"),
        (["--method", "ncm", "--views", "flip"], "leave --views out"),
        (["--method", "ncm", "--epochs", "3"], "leave --epochs out"),
        (["--method", "ncm", "--recipe", "lr=0.5"], "leave --recipe lr out"),
        (["--method", "ncm", "--weights", "w.pt"], "leave --weights out"),
        (["--method", "ncm", "--network", "released"], "leave --network out"),
        (["--method", "ncm", "--devices", "2"], "leave --devices out"),
        (["--method", "ncm", "--representation", "rotation"], "leave --representation out"),
        (
            ["--method", "ncm", "--representation-seed", "0-4"],
            "with another --representation-seed it answers the same; leave it out",
        ),
        (["--method", "ncm", "--features", "no.npz"], "no.npz: no such file of features"),
    ],
)
def test_what_a_file_cannot_do_is_refused_before_anything_runs(
    new_toy: Any, exported: Path, words: list[str], told: str
) -> None:
    assert told in failure(new_toy, "run", "--features", exported, *words)
    assert not (new_toy.folder / "results").exists()


def changed(exported: Path, file: Path, **rows: float) -> Path:
    """Write a file of features like another, with a number added to some of its halves."""
    with np.load(exported) as held:
        arrays = dict(held)
    for name, value in rows.items():
        arrays[f"{name}_features"] = arrays[f"{name}_features"] + np.float32(value)
    np.savez(file, **arrays)
    return file


def test_negative_features_are_refused_in_tukey_space_with_what_runs(
    toy: Any, exported: Path, tmp_path: Path
) -> None:
    file = changed(exported, tmp_path / "signed.npz", train=-0.5, test=-0.5)
    told = failure(toy, "run", "--method", "ncm", "--set", "space=tukey", "--features", file)
    assert "signed has negative features, in train_features: row 0 (" in told
    assert "--set ncm.space=raw takes them as they are" in told
    assert re.search(r"with their defaults run: .*\bldc\b.*\bncm\b", told)
    assert toy.run("free_lunch", features=file, params={"space": "raw"}).accuracies[0] > 0.5
    assert toy.run("free_lunch", features=file).record.notes["space"] == "raw"


def test_a_space_settled_on_base_features_is_held_against_the_others(
    toy: Any, exported: Path, tmp_path: Path
) -> None:
    file = changed(exported, tmp_path / "half.npz", test=-0.5)
    told = failure(toy, "run", "--method", "free_lunch", "--features", file)
    assert "works, as space = auto and no base feature is negative, in Tukey space" in told
    assert "half has negative features, in test_features: row 0 (" in told
    assert "--set free_lunch.space=raw" in told
    able = told.partition("with their defaults run: ")[2].split(", ")
    assert "ncm" in able and not {"ldc", "free_lunch", "mahalanobis"} & {*able}
    assert toy.run("free_lunch", features=file, params={"space": "raw"}).key


def test_a_file_is_the_data_set_where_there_is_none(
    toy: Any, exported: Path, tmp_path: Path
) -> None:
    """The same protocol on a data set that is not there: the same shots and predictions."""
    toml = own(toy, tmp_path)
    with_data, without = toy.run(features=exported), toy.run(features=exported, protocol=toml)
    assert np.array_equal(with_data.predictions, without.predictions)
    flag = "labels and order of samples as the file of features has them"
    assert without.record.flags == (flag,)
    told = results_frame([with_data, without]).drop_duplicates("key")
    assert told["features"].tolist() == [exported.stem, exported.stem]
    assert told["official"].tolist() == [True, False]
    assert set(told["representation"]) == {f"features {exported.stem}"}
    assert set(told["representation_params"]) == {"{}"} and set(told["epochs"]) == {0}
    fingerprints = {run.spec.representation.data_fingerprint for run in (with_data, without)}
    assert len(fingerprints) == 1


def test_published_shots_are_found_by_the_numbers_of_a_file(
    toy: Any, exported: Path, tmp_path: Path
) -> None:
    toml = own(toy, tmp_path, canonical_rows="toy")
    text = toml.read_text(encoding="utf-8").replace(
        "dataset = ", 'canonical_rows = "toy"\ndataset = ', 1
    )
    toml.write_text(text, encoding="utf-8")
    with_data = toy.run(features=exported, split="canonical")
    without = toy.run(features=exported, split="canonical", protocol=toml)
    assert with_data.spec.split == without.spec.split == "canonical"
    assert np.array_equal(with_data.predictions, without.predictions)


def bare(exported: Path, folder: Path) -> Path:
    """Write a file of features as other code would, with nothing but what is needed."""
    with np.load(exported) as held:
        needed = {k: held[k] for k in held.files if k.endswith(("_features", "_labels"))}
    np.savez(folder / "bare.npz", **needed)
    return folder / "bare.npz"


def test_shots_are_drawn_where_the_published_are_not_to_be_found(
    toy: Any, exported: Path, tmp_path: Path
) -> None:
    toml = own(toy, tmp_path, split="canonical")
    text = toml.read_text(encoding="utf-8").replace(
        "dataset = ", 'canonical_rows = "toy"\ndataset = ', 1
    )
    toml.write_text(text, encoding="utf-8")
    words = [*toy.words(), "--protocol", toml, "--features", bare(exported, tmp_path)]
    done = CliRunner().invoke(app, [*map(str, ["run", "--method", "ncm", *words])])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    told = "the published shots of protocol 'own' cannot be told among the features: "
    unread = "data set 'cub200' is not read, and no class_keys and train_numbers in the file"
    assert f"{told}{unread} name them; shots are drawn, as --split seeded does" in text
    assert "shots.csv" not in text
    with pytest.raises(UsageError, match=f"^{told}.*; draw others with --split seeded, name the"):
        toy.run(features=bare(exported, tmp_path), protocol=toml, split="canonical")


def test_published_shots_are_found_by_order_where_their_labels_tell_it(
    exported: Path, toy: Any, tmp_path: Path
) -> None:
    """Rows are not grouped by class, as those of CIFAR100 are not."""
    with np.load(exported) as held:
        order = np.random.default_rng(0).permutation(len(held["train_labels"]))
        needed = {k: held[k] for k in held.files if k.endswith(("_features", "_labels"))}
    needed |= {name: needed[name][order] for name in ("train_features", "train_labels")}
    np.savez(tmp_path / "mixed.npz", **needed)
    chosen = {c: np.flatnonzero(needed["train_labels"] == c)[[4, 0, 2]] for c in range(4, 10)}
    rows = [f"own,1,{label},{' '.join(map(str, numbers))}" for label, numbers in chosen.items()]
    table = "\n".join(["protocol,session,class,samples", *rows])
    (tmp_path / "shots.csv").write_text(table, encoding="utf-8")
    toml = own(toy, tmp_path, split="canonical", canonical_shots="shots.csv")
    places = {"results": tmp_path / "results", "cache": tmp_path / "cache"}
    bench = Workbench.open(Options(features=tmp_path / "mixed.npz", **places))
    plan = bench.plan(RunRequest("ncm", str(toml)))
    shots = np.concatenate(bench.start(plan)[1].assignment.shots)
    assert plan.spec.split == "canonical"
    assert shots.tolist() == np.concatenate([*chosen.values()]).tolist()


def test_rows_matched_by_order_are_flagged(toy: Any, exported: Path, tmp_path: Path) -> None:
    run = toy.run(features=bare(exported, tmp_path))
    assert run.record.flags == ("features matched to samples by order",)
    assert np.array_equal(run.predictions, toy.run(features=exported).predictions)


def test_copies_between_the_halves_are_flagged_and_constant_features_refused(
    toy: Any, exported: Path, tmp_path: Path
) -> None:
    with np.load(exported) as held:
        arrays = dict(held)
    arrays["test_features"] = arrays["test_features"].copy()
    arrays["test_features"][:2] = arrays["train_features"][[3, 5]]
    np.savez(tmp_path / "copies.npz", **arrays)
    assert toy.run(features=tmp_path / "copies.npz").record.flags == (
        "2 test rows equal a training row",
    )
    arrays["train_features"] = np.ones_like(arrays["train_features"])
    np.savez(tmp_path / "same.npz", **arrays)
    rows = len(arrays["train_features"])
    with pytest.raises(DataError, match=f"same: all {rows} rows of train_features are equal, so"):
        toy.run(features=tmp_path / "same.npz")


def test_a_file_with_too_many_classes_is_refused(toy: Any, exported: Path, tmp_path: Path) -> None:
    toml = own(toy, tmp_path, classes="9", sessions="2")
    with pytest.raises(
        DataError, match="exported: has 10 classes, data set 'cub200' is asked for 9"
    ):
        toy.run(features=exported, protocol=toml)


def test_the_order_of_classes_can_be_changed(toy: Any, exported: Path, tmp_path: Path) -> None:
    changed = {"overrides": {"class_order": "seed:1"}}
    network = toy.run(**changed)
    file = tmp_path / "f.npz"
    fb.export_features(toy.toml, file, **settings(toy, protocol=None, **changed))
    assert np.array_equal(network.predictions, toy.run(features=file, **changed).predictions)
    assert read_feature_file(file).class_names == read_feature_file(exported).class_names


def test_parameters_can_be_tuned_and_the_row_says_what_is_not_known(
    toy: Any, exported: Path
) -> None:
    chosen = settings(toy, protocol=toy.toml, features=exported)
    choice = fb.tune("ncm", grid={"space": ["raw", "tukey"]}, seeds="0-1", **chosen)
    assert len(choice.trials) == 2
    run = toy.run(features=exported, tuned=True)
    assert run.spec.params["space"] == choice.params["space"]
    pseudo = [
        each
        for each in Store(toy.folder / "results", toy.folder / "cache").runs()[0]
        if each.spec.protocol.test_from_train
    ]
    assert any(
        "may have seen the classes that play new ones" in " ".join(each.record.flags)
        for each in pseudo
    )


def test_episodes_and_outliers_are_drawn_from_a_file(toy: Any, exported: Path) -> None:
    chosen = settings(toy, design=None, protocol=None, queries=5, shot=3, episodes=4)
    network = fb.run_episodes("ldc", toy.toml, **chosen)
    file = fb.run_episodes("ldc", toy.toml, features=exported, **chosen)
    assert np.array_equal(network.accuracies, file.accuracies)
    pair = [toy.run(split="outlier:0.3", **each) for each in ({}, {"features": exported})]
    assert np.array_equal(pair[0].predictions, pair[1].predictions)


def test_a_scanned_file_is_a_protocol(toy: Any, exported: Path, tmp_path: Path) -> None:
    words = ["data", "scan", "--features", exported, "--way", 2, "--shot", 3, "--base", 4]
    toml = tmp_path / "my.toml"
    done = CliRunner().invoke(app, [*map(str, words), "--out", str(toml)])
    assert done.exit_code == 0, done.output
    run = fb.run("ncm", toml, **settings(toy, protocol=None))
    protocol = run.spec.protocol
    assert run.record.flags == ()
    assert (protocol.name, protocol.dataset, protocol.sessions) == ("my", "features", 3)
    # Keys of classes are in the file, so that the same shots are drawn.
    assert np.array_equal(run.predictions, toy.run(features=exported).predictions)
    told = command_for(run.spec, load_registry())
    assert "--protocol PATH/TO/my.toml" in told and told.endswith("--features PATH/TO/exported")
    assert "--epochs" not in told and "--backbone" not in told, "which a run on features refuses"
    other = tmp_path / "other.npz"
    shutil.copy(exported, other)
    by_hand = fb.run("ncm", toml, **settings(toy, protocol=None, features=other))
    known = load_registry()
    known.add_protocol_file(toml)
    assert "--features" not in command_for(run.spec, known), "the protocol names it"
    assert command_for(by_hand.spec, known).endswith("--features PATH/TO/other")
    card = fb.make_report("card", toml, methods="ncm", **settings(toy, protocol=None)).text
    assert f"features: from a file: {run.spec.representation.pretraining}." in card
    assert "representation's code: none, nothing is trained" in card and "image size" not in card
    lacking = toml.with_name("more.toml")
    lacking.write_text(
        re.sub(r"^(classes|sessions) = .*$", r"\1 = 6", toml.read_text(), flags=re.M)
    )
    text = re.sub(r"^sessions = .*$", "sessions = 6", toml.read_text(), flags=re.MULTILINE)
    lacking.write_text(re.sub(r"^classes = .*$", "classes = 16", text, flags=re.MULTILINE))
    with pytest.raises(DataError, match="needs 16 classes, file of features 'exported' has 10"):
        fb.run("ncm", lacking, **settings(toy, protocol=None))
    too_many = CliRunner().invoke(app, [*map(str, words[:-1]), "9"])
    assert too_many.exit_code == 1 and "too few classes for one session" in " ".join(
        too_many.output.split()
    )
    both = CliRunner().invoke(app, [*map(str, words), str(tmp_path)])
    assert both.exit_code == 2 and "FOLDER and --features" in " ".join(both.output.split())


def test_features_that_fit_no_protocol_are_told_what_makes_one(toy: Any, exported: Path) -> None:
    told = failure(
        toy, "run", "--method", "ncm", "--protocol", "glyphs", "--features", exported, code=1
    )
    assert f"`fscil-bench data scan --features {exported} --way 5 --shot 5 --base 60% --out" in told


def test_labels_and_an_order_that_are_wrong_are_told_and_no_way_around_them(
    toy: Any, exported: Path, tmp_path: Path
) -> None:
    with np.load(exported) as held:
        named = dict(held)
    labels = named["train_labels"]
    named["train_labels"] = (labels + 1) % 10
    file = tmp_path / "wrong.npz"
    np.savez(file, **named)
    words = ("run", "--method", "ncm", "--features", file)
    told = failure(toy, *words, code=1)
    assert f"{len(labels)} rows differ" in told and "data scan" not in told
    bare(file, tmp_path).replace(file)
    told = failure(toy, *words, code=1)
    assert f"{len(labels)} rows differ: the order is another" in told and "data scan" not in told


def test_a_table_says_that_features_come_from_a_file(toy: Any, exported: Path) -> None:
    run = toy.run(["ncm", "teen"], features=exported)[0]
    toy.run("ncm")
    kept = settings(toy, protocol=None, plugins=toy.plugins)
    text = fb.make_report("main-table", toy.toml, **kept).text
    title = run.spec.representation.pretraining
    assert f"features from a file: {title}" in text
    assert f"NCM (features={title}" in text
    assert "ncm [features exported" in fb.make_report("grid", toy.toml, **kept).text
    registry = load_registry(toy.plugins)
    assert "--features PATH/TO/exported" in command_for(run.spec, registry)


def test_reports_find_features_without_the_file(toy: Any, exported: Path) -> None:
    run = toy.run(features=exported)
    store = Store(toy.folder / "results", toy.folder / "cache")
    found = Evaluation(store, load_registry(toy.plugins)).features(run)
    written = read_feature_file(exported)
    assert np.array_equal(found.train, written.train.features)
    assert found.test_labels.tolist() == written.test.labels.tolist()


def test_the_code_in_the_documentation_makes_a_file(
    toy: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), flags=re.S)
    rng = np.random.default_rng(0)
    labels = {"train": np.repeat(np.arange(10), 12), "test": np.repeat(np.arange(10), 5)}

    class Network:
        def __call__(self, images: Any) -> np.ndarray:
            noise: np.ndarray = rng.normal(size=(len(images), 8)) / 4
            return np.eye(10)[images][:, :8] + noise

    monkeypatch.chdir(tmp_path)
    names = {
        "network": Network(),
        "train_images": labels["train"],
        "test_images": labels["test"],
        "train_labels": labels["train"],
        "test_labels": labels["test"],
    }
    assert len([line for line in code.splitlines() if line.strip()]) <= 6
    exec(compile(code, str(DOCS), "exec"), names)
    run = toy.run(features=tmp_path / "features.npz")
    assert run.accuracies[0] > 0.9
