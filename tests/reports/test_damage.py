"""What cannot be read changes nothing in any report, and is named."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fscil_bench.api import make_report
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.store.runs import Store, StoredRun

REPORTS = load_registry().names("report")


def truncate_record(run: StoredRun) -> None:
    path = run.folder / "run.json"
    path.write_bytes(path.read_bytes()[:500])


def older_record(run: StoredRun) -> None:
    path = run.folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | {"schema_version": 0}))


def remove_predictions(run: StoredRun) -> None:
    (run.folder / "predictions.npz").unlink()


def shorten_predictions(run: StoredRun) -> None:
    path = run.folder / "predictions.npz"
    np.savez(path, predictions=run.predictions[:, :-1], targets=run.targets[:-1])


def predict_nan(run: StoredRun) -> None:
    path = run.folder / "predictions.npz"
    np.savez(path, predictions=run.predictions * np.nan, targets=run.targets)


UNREADABLE = (truncate_record, older_record)
DAMAGE = (*UNREADABLE, remove_predictions, shorten_predictions, predict_nan)


def outcome(name: str, store: Store, out: Path) -> tuple[str, tuple[str, ...]]:
    """Return what a report says of the damaged runs' protocol, or its error; and its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            made = make_report(name, "cifar100", results=store.results, folder=out)
        except FscilError as error:
            return f"{type(error).__name__}: {error}", ()
    return made.text.replace(str(out), "OUT"), made.warnings


def without(text: str, run: StoredRun) -> str:
    """Return a text without lines, or parts of them, that name a run's folder."""
    place = re.escape(str(run.folder))
    text = re.sub(rf"(?m)^.*{place}.*\n?", "", text)
    text = re.sub("(runs that cannot|Cannot) be read:", "", text)
    return re.sub(r"\n{2,}", "\n\n", text).strip()


@pytest.mark.parametrize("name", REPORTS)
def test_damaged_runs_spoil_no_report(
    factory: Any, store: Store, tmp_path: Path, name: str
) -> None:
    protocol = load_registry().protocol("cifar100")[0]
    small = protocol.override(way=1, sessions=1)
    right = [(400, 0), (300, 5)]
    for method in ("ncm", "ldc"):
        for seed in range(2):
            factory.write(factory.spec(method, seed, small), right)
    before, _ = outcome(name, store, tmp_path / "before")
    for number, damage in enumerate(DAMAGE):
        run = factory.write(factory.spec("ncm", 10 + number, small), right)
        damage(run)
        after, named = outcome(name, store, tmp_path / "after")
        assert without(after, run) == before.strip(), damage.__name__
        # Arrays are read only by reports that show them; --strict looks at all.
        if damage in UNREADABLE:
            assert str(run.folder) in "\n".join([after, *named]), damage.__name__
        for file in run.folder.iterdir():
            file.unlink()
        run.folder.rmdir()


def test_the_written_table_names_damaged_records_of_its_protocol(
    factory: Any, store: Store, tmp_path: Path
) -> None:
    protocol = load_registry().protocol("cifar100")[0].override(way=1, sessions=1)
    runs = [
        factory.write(factory.spec("ncm", seed, each), [(400, 0), (300, 5)])
        for seed, each in enumerate((protocol, protocol, protocol.override(name="other")))
    ]
    for run in runs[1:]:
        truncate_record(run)

    made = make_report("main-table", "cifar100", results=store.results, folder=tmp_path / "out")

    table = (tmp_path / "out" / "main-table.md").read_text("utf-8")
    assert f"left out: {runs[1].folder / 'run.json'}: damaged" in table
    assert str(runs[2].folder) not in table
    assert len(made.warnings) == 2
    assert str(runs[2].folder) in made.warnings[1]


def test_a_folder_of_results_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file: a file, and no folder of results"):
        make_report("site", results=tmp_path / "file")
    with pytest.raises(FscilError, match=r"make one: .*\nthe folder .*nowhere does not exist"):
        make_report("site", results=tmp_path / "nowhere")
