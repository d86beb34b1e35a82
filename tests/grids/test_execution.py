"""Grids on workers: the same results bit for bit, and what happens when something dies."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fscil_bench as fb
from fscil_bench.cli.app import app
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.grids import workers as places
from fscil_bench.grids.execution import everywhere
from fscil_bench.options import DATA_VARIABLE, Options
from fscil_bench.progress import Silent
from fscil_bench.store.locks import locked
from fscil_bench.store.runs import Store

distributed = pytest.importorskip("distributed")
FATAL = Path(__file__).parent / "fatal_methods.py"
FEW = {"unit_steps": 3, "unit_classes": 2, "epochs": 3}
LDC = {f"ldc.{name}": value for name, value in FEW.items()}
PATIENCE = 300.0
"""Seconds in which something must have happened, on a machine that has much else to do."""


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    """A scheduler in this process with two worker processes."""
    import dask

    with dask.config.set(places.CONFIG), places.local_cluster(2, 0, 1) as cluster:
        yield cluster


@pytest.fixture
def inside() -> Iterator[Any]:
    """A scheduler and a worker in this very process, which start in no time."""
    from distributed import LocalCluster

    settings = {"processes": False, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, silence_logs="CRITICAL", **settings) as cluster:
        yield cluster


def run(toy: Any, cluster: Any = None, **asked: Any) -> list[fb.StoredRun]:
    """Run on a cluster, or serially."""
    own = {"method": ["ncm", "ldc"], "seed": "0-2", "params": LDC, "threads": 1, **asked}
    if cluster is not None:
        through = own.pop("through", "worker")
        address = cluster.scheduler_address
        own["workers"] = fb.Workers(scheduler=address, store_through=through)
    made: list[fb.StoredRun] = fb.run(**toy.settings(**own))
    return made


def same(one: list[fb.StoredRun], two: list[fb.StoredRun]) -> bool:
    """Return whether runs have the same keys, networks and predictions, in the same order."""
    return all(
        (a.key, a.record.network) == (b.key, b.record.network)
        and np.array_equal(a.predictions, b.predictions)
        for a, b in zip(one, two, strict=True)
    )


def until(told: Callable[[], object]) -> None:
    started = time.monotonic()
    while not told():
        assert time.monotonic() - started < PATIENCE
        time.sleep(0.05)


@pytest.fixture(scope="module")
def serial(toy: Any) -> list[fb.StoredRun]:
    return run(toy)


@pytest.fixture
def trained_toy(toy: Any, serial: list[fb.StoredRun], new_toy: Any) -> Any:
    """Return the toy data set with its network and features, and no run."""
    assert serial
    for place in ("results/representations", "cache"):
        shutil.copytree(toy.folder / place, new_toy.folder / place)
    return new_toy


def test_a_grid_equals_the_serial_runs_bit_for_bit(
    processes: Any, serial: list[fb.StoredRun], new_toy: Any
) -> None:
    made = run(new_toy, processes)
    assert same(made, serial)
    assert {run.folder.parents[3] for run in made} == {new_toy.folder / "results"}
    stamps = {run.folder: run.folder.stat().st_mtime_ns for run in made}
    assert same(run(new_toy, processes), serial)
    assert {folder: folder.stat().st_mtime_ns for folder in stamps} == stamps, "none is made again"


def test_workers_keep_freed_memory_and_compute_with_their_threads(
    processes: Any,
) -> None:
    """Dask sets a threshold that makes runs on features three times as long."""
    with distributed.Client(processes) as client:
        found = client.run(lambda: dict(os.environ)).values()
    own = os.environ.get("MALLOC_TRIM_THRESHOLD_")
    assert [names.get("MALLOC_TRIM_THRESHOLD_") for names in found] == [own, own]
    assert [names["OMP_NUM_THREADS"] for names in found] == ["1", "1"]


def test_workers_without_the_store_send_what_they_made(
    processes: Any, serial: list[fb.StoredRun], new_toy: Any
) -> None:
    asked = {"method": "ldc", "through": "client"}
    first = run(new_toy, processes, seed=[0], **asked)
    again = run(new_toy, processes, seed=[1, 2], **asked)
    assert same(first + again, serial[3:])
    assert len(list(new_toy.folder.glob("results/representations/*/weights.safetensors"))) == 1
    assert not list(new_toy.folder.glob("cache/features/*")), "nobody wrote there"


def test_workers_find_a_file_that_is_named_from_where_the_client_is(
    processes: Any, trained_toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained_toy.folder)
    np.save("words.npy", np.eye(30))
    few = {"vectors": "words.npy", "vae_epochs": 1, "base_epochs": 1, "epochs": 1}
    params = {f"sfms.{name}": value for name, value in few.items()}
    (made,) = run(trained_toy, processes, method=["sfms"], params=params, seed=0)
    assert made.record.notes["class_vectors"] == "of words.npy"


def test_a_killed_worker_is_replaced_and_its_task_repeated(
    processes: Any, new_toy: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    marks = [new_toy.folder / name for name in ("training", "run")]
    asked: dict[str, Any] = {
        "method": ["killed"],
        "seed": "0-1",
        "representation": "killed_training",
        "params": {"mark": str(marks[1])},
        "representation_params": {"mark": str(marks[0])},
        "plugins": (*new_toy.plugins, FATAL),
    }
    made = run(new_toy, processes, progress=True, **asked)
    deaths = re.findall("a worker died; what it held is repeated: (.+)", capsys.readouterr().err)
    titles = ("killed_training on toy, resnet20, ", "killed on toy [killed_training], seed 1")
    for title, told in zip(titles, deaths, strict=True):
        assert title in told, "it may have held what waited, too"
    assert all(mark.exists() for mark in marks), "a worker died in the training, one in a run"
    elsewhere = replace(new_toy, folder=new_toy.folder / "serial")
    assert same(made, run(elsewhere, **asked)), "the marks are there, so that nothing dies now"


@pytest.mark.slow
def test_what_kills_every_worker_is_named(
    processes: Any, trained_toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes.scheduler, "allowed_failures", 0)
    words = ["run", *trained_toy.words(), "--plugin", str(FATAL), "--threads", "1"]
    words += ["--scheduler", processes.scheduler_address, "--method", "ncm,killed"]
    words += ["--set", f"killed.mark={trained_toy.folder}/no/such/folder", "--seeds", "1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1
    told = " ".join(done.output.split())
    assert "1 of 2 runs failed; the others are stored" in told


def test_a_run_that_always_fails_costs_the_others_nothing(
    inside: Any, trained_toy: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"method": ["failing"], "plugins": (*trained_toy.plugins, FATAL), "params": {}}
    with pytest.raises(FscilError, match=r"^1 of 3 runs failed; the others are stored$"):
        run(trained_toy, inside, progress=True, **asked)
    told = "failing on toy [cosine], seed 1: method 'failing' failed in session 1: ValueError: one"
    assert told in capsys.readouterr().err
    assert sorted(r.spec.seed for r in Store(trained_toy.folder / "results").runs()[0]) == [0, 2]


def test_a_network_that_cannot_be_trained_costs_all_its_runs(inside: Any, new_toy: Any) -> None:
    with pytest.raises(FscilError, match=r"^3 of 3 runs failed$"):
        run(new_toy, inside, method=["ncm"], params={}, overrides={"lr": 1e30})


def test_a_scheduler_that_goes_away_is_told(inside: Any, trained_toy: Any) -> None:
    errors: list[BaseException] = []

    def client() -> None:
        try:
            run(
                trained_toy,
                inside,
                method=["slow"],
                params={},
                plugins=(*trained_toy.plugins, FATAL),
            )
        except FscilError as error:
            errors.append(error)

    working = threading.Thread(target=client)
    working.start()
    store = Store(trained_toy.folder / "results", trained_toy.folder / "cache")
    until(lambda: "running: slow on toy [cosine], seeds 0-2: slow: sessions, " in status(store))
    told = status(store)
    assert re.search(r"0 of 1 tasks done, 1 running, 0 waiting, 0 failed", told)
    assert f"process {os.getpid()} on" in told
    inside.close()
    working.join(PATIENCE)
    [error] = errors
    assert "the scheduler is gone: what is finished is stored" in str(error)
    assert status(store) == f"no grid runs on {store.results}\n"


def test_workers_look_where_the_client_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("given", "named", "data"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(DATA_VARIABLE, "named")
    sent = everywhere(Options(data_root="given"), Store(tmp_path / "r", tmp_path / "c"), 1)
    monkeypatch.chdir(tmp_path / "data")
    monkeypatch.setenv(DATA_VARIABLE, "/its/own")
    roots = [tmp_path / name for name in ("given", "named", "data")]
    assert sent.changed(device="cpu").data_roots == (*roots, Path("/its/own"), Path("data"))


def status(store: Store) -> str:
    return CliRunner().invoke(app, ["status", "--results", str(store.results)]).output


def test_a_status_file_without_sense_is_named(tmp_path: Path) -> None:
    store, file = Store(tmp_path), tmp_path / ".grids" / "a.json"
    file.parent.mkdir()
    for text in ("", "[]", '{"process": 3}'):
        file.write_text(text)
        told = status(store)
        assert told.startswith(f"warning: {file}: tells of no grid ("), told
        assert told.endswith(f"no grid runs on {store.results}\n")


@pytest.mark.slow
def test_a_killed_client_leaves_nobody_and_is_taken_up_again(
    serial: list[fb.StoredRun], new_toy: Any
) -> None:
    words = [sys.executable, "-m", "fscil_bench", "run", *new_toy.words(), "--method", "slow"]
    words += ["--plugin", str(FATAL), "--seeds", "0-2", "--threads", "1", "--jobs", "1"]
    store = Store(new_toy.folder / "results", new_toy.folder / "cache")
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True) as client:
        until(lambda: list(store.results.glob("representations/*/weights.safetensors")))
        client.send_signal(signal.SIGKILL)
    assert "it has ended without a word" in status(store)
    assert status(store) == f"no grid runs on {store.results}\n", "it was told once"
    until(lambda: not group(client.pid))
    made = run(new_toy, method=["ncm"], params={})
    assert same(made, serial[:3]), "the network is the one that the killed grid had made"


def group(leader: int) -> list[str]:
    """Return the processes of a session that still run."""
    told = subprocess.run(["ps", "-s", str(leader), "-o", "pid="], capture_output=True, text=True)
    return told.stdout.split()


def test_a_plain_command_waits_for_another_that_trains_the_same(toy: Any, new_toy: Any) -> None:
    key = toy.run().spec.representation.key
    store = Store(new_toy.folder / "results", new_toy.folder / "cache")
    told: list[str] = []

    class Said(Silent):
        def say(self, message: str) -> None:
            told.append(message)

    second = threading.Thread(target=lambda: new_toy.run(progress=Said()))
    with locked(store.lock(f"network-{key}"), told.append):
        second.start()
        until(lambda: told)
        assert not (store.representation_folder(key) / "weights.safetensors").exists()
    second.join(PATIENCE)
    assert len(store.runs()[0]) == 1
    assert re.match(r"waiting for process \d+ on .*, which makes the same", told[0])


@pytest.mark.parametrize(
    ("device", "gpus", "on_gpu", "expected"),
    [
        ("auto", 1, True, ("cuda", {"GPU": 1.0})),
        ("auto", 1, False, ("cpu", {})),
        ("auto", 0, True, ("cpu", {})),
        ("cpu", 1, True, ("cpu", {})),
        ("cuda", 1, False, ("cuda", {"GPU": 1.0})),
    ],
)
def test_a_training_takes_a_gpu_and_runs_on_frozen_features_none(
    device: str, gpus: int, on_gpu: bool, expected: object
) -> None:
    pool = places.Pool(client=None, count=2, gpus=gpus, threads=1)
    assert places.device_of(pool, Options(device=device), on_gpu) == expected
    for wrong, having in (("cuda", 0), ("cuda:1", 2)):
        with pytest.raises(UsageError, match=f"--device {wrong}: "):
            places.device_of(replace(pool, gpus=having), Options(device=wrong), on_gpu)


def test_a_training_on_several_devices_takes_one_worker_with_as_many_gpus() -> None:
    pool = places.Pool(client=None, count=2, gpus=1, threads=1, most_gpus=4)
    assert places.device_of(pool, Options(), True, devices=4) == ("cuda", {"GPU": 4.0})
    for options, most, told in (
        (Options(), 2, "--devices 4: no worker has so many GPUs"),
        (Options(device="cpu"), 4, "--devices 4 --device cpu: a worker trains in one process"),
    ):
        with pytest.raises(UsageError, match=told):
            places.device_of(replace(pool, most_gpus=most), options, True, devices=4)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"jobs": 2, "scheduler": "tcp://a:1"}, "name one place to work in"),
        ({"jobs": 0}, "--jobs 0: give 1 to 4096 processes"),
        ({"jobs": 100000}, "--jobs 100000: give 1 to 4096 processes"),
        ({"scheduler": "host:8786"}, "--scheduler 'host:8786': write tcp://HOST:PORT"),
        ({"scheduler": "tcp://host"}, "--scheduler 'tcp://host': write tcp://HOST:PORT"),
        ({"store_through": "client"}, "goes with --jobs, --scheduler or --cluster"),
        ({"jobs": 2, "store_through": "me"}, "write worker or client"),
    ],
)
def test_places_that_make_no_sense_are_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        fb.Workers(**asked)


def test_a_scheduler_that_is_not_there_is_told(
    new_toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PATIENCE", 0.2)
    words = ["run", *new_toy.words(), "--method", "ncm", "--scheduler", "tcp://127.0.0.1:1"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    first, second = done.stderr.splitlines()
    assert first == "connecting to tcp://127.0.0.1:1"
    assert second.startswith("error: --scheduler tcp://127.0.0.1:1: cannot be reached, or has no")


def test_without_dask_a_message_says_what_to_install(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'fscil-bench\[dask\]'"):
        toy.run(workers=fb.Workers(jobs=2))
