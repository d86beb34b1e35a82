"""Workers in jobs of batch systems: the scripts, and a job that a stub of sbatch runs."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fscil_bench as fb
from fscil_bench.cli.app import app
from fscil_bench.errors import UsageError
from fscil_bench.grids.jobs import JobFile

pytest.importorskip("dask_jobqueue")

SLURM = """\
system = "slurm"
workers = 4
queue = "gpu"
account = "fewshot"
time = "04:00:00"
memory = "32GB"
cores = 8
gpus = 1
modules = ["cuda/12.4"]
setup = ["ulimit -c 0"]
directives = ["--constraint=a100"]
python = "/opt/python"
"""
SCRIPT = """\
#!/usr/bin/env bash

#SBATCH -J fscil-bench
#SBATCH -p gpu
#SBATCH -A fewshot
#SBATCH -n 1
#SBATCH --cpus-per-task=8
#SBATCH --mem=30G
#SBATCH -t 04:00:00
#SBATCH --gres=gpu:1
#SBATCH --constraint=a100
module load cuda/12.4
export OMP_NUM_THREADS=8
export MKL_NUM_THREADS=8
export OPENBLAS_NUM_THREADS=8
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False
export MALLOC_TRIM_THRESHOLD_=268435456
export MALLOC_MMAP_THRESHOLD_=33554432
ulimit -c 0
/opt/python -m distributed.cli.dask_worker tcp://SCHEDULER:8786 --name fscil-bench --nthreads 8 \
--memory-limit 29.80GiB --nanny --death-timeout 60 --nthreads 1 --resources GPU=1
"""
ASKS: dict[str, tuple[str, ...]] = {
    "pbs": ("#PBS -q gpu", "#PBS -A fewshot", "select=1:ncpus=8:mem=32GB:ngpus=1"),
    "lsf": ("#BSUB -q gpu", '#BSUB -P "fewshot"', "#BSUB -n 8", '#BSUB -gpu "num=1"'),
    "sge": ("#$ -q gpu", "#$ -P fewshot", "#$ -l gpu=1"),
    "htcondor": ("RequestCpus = MY.DaskWorkerCores", "request_gpus = 1", "DaskWorkerCores = 8"),
}
OWN = {
    "pbs": "-l place=free",
    "lsf": "-x",
    "sge": '-pe smp 8", "-l h_vmem=4G',
    "htcondor": "Requirements = HasGPU",
}
LIMITS = ("#SBATCH -t", "walltime", "#BSUB -W", "h_rt")
SBATCH = """\
#!/bin/sh
echo "$@" >> "$STUB_LOG"
sh "$1" >> "$STUB_LOG" 2>&1 &
echo "Submitted batch job $!"
"""
JOBQUEUE = """\
import signal

signal.signal(signal.SIGINT, lambda *_: None)

class SLURMCluster:
    class job_cls:
        def __init__(self, **_): pass
        def job_script(self): return "made"
"""
SCANCEL = """\
#!/bin/sh
for job; do kill "$job" 2>> "$STUB_LOG"; done
"""


def job_file(folder: Path, text: str = SLURM) -> Path:
    file = folder / "cluster.toml"
    file.write_text(text)
    return file


def test_a_dry_run_prints_the_script_of_a_slurm_job(new_toy: Any, tmp_path: Path) -> None:
    words = ["run", *new_toy.words(), "--method", "ncm", "--dry-run"]
    done = CliRunner().invoke(app, [*words, "--cluster", str(job_file(tmp_path))])
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith(SCRIPT)
    assert "on 4 processes" not in done.stdout, "no time is known"


@pytest.mark.parametrize("system", ASKS)
def test_other_systems_are_asked_for_the_same(tmp_path: Path, system: str) -> None:
    text = SLURM.replace('"slurm"', f'"{system}"').replace("--constraint=a100", OWN[system])
    if system == "lsf":
        text = text.replace("04:00:00", "04:00")
    if system == "htcondor":
        text = re.sub("(queue|account|time) = ", "# ", text)
    script = JobFile.read(job_file(tmp_path, text)).script(threads=2)
    for line in ASKS[system]:
        assert line in script
    assert "export OMP_NUM_THREADS=2" in script
    assert "--nthreads 1 --resources GPU=1" in script


def test_workers_of_several_gpus_may_start_the_processes_of_a_training(tmp_path: Path) -> None:
    file = JobFile.read(job_file(tmp_path, SLURM.replace("gpus = 1", "gpus = 4")))
    script = file.script(threads=2)
    assert "#SBATCH --gres=gpu:4" in script and "--resources GPU=4" in script
    assert "export DASK_DISTRIBUTED__WORKER__DAEMON=False" in script


@pytest.mark.parametrize(
    ("system", "told"),
    [
        ('"slurm"\nqueue = ""', "queue: one line of text, not an empty one, is ''"),
        ('"slurm"\nqueue = "a\\nb"', "queue: one line of text, not an empty one, is "),
        ('"slurm"\nsetup = ["a", " "]', r"setup\.1: one line of text, not an empty one, is ' '"),
        ('"slurm"\nmemory = "0.0GB"', "memory: a size as 16GB or 512MiB, is '0.0GB'"),
        ('"slurm"\ntime = "banana"', "time: slurm writes HH:MM:SS or DAYS-HH:MM:SS, is 'banana'"),
        ('"lsf"\ntime = "01:00:00"', "time: lsf writes HH:MM, is '01:00:00'"),
        ('"lsf"\ndisk = "4GB"', "disk: jobs of lsf have none"),
        ('"htcondor"\ntime = "1"', "time: jobs of htcondor have none; its own go into directives"),
        ('"htcondor"\ndirectives = ["no"]', "directives: 'no': for htcondor write NAME = VALUE"),
        ('"sge"\ncores = 4', "cores: sge books 4 by .* as '-pe smp 4'"),
        ('"sge"\nmemory = "4GB"', "memory: sge books it by .* as '-l h_vmem=...'"),
    ],
)
def test_what_a_system_would_not_do_is_refused(tmp_path: Path, system: str, told: str) -> None:
    with pytest.raises(UsageError, match=rf"cluster\.toml: {told}"):
        JobFile.read(job_file(tmp_path, f"system = {system}\n"))


@pytest.mark.parametrize("system", ["slurm", *ASKS])
def test_a_job_has_the_limit_that_its_file_names(tmp_path: Path, system: str) -> None:
    script = JobFile.read(job_file(tmp_path, f'system = "{system}"\n')).script(threads=1)
    assert not any(limit in script for limit in LIMITS), "dask-jobqueue would say half an hour"


def test_a_chunk_of_ones_own_replaces_the_usual_one(tmp_path: Path) -> None:
    own = "-l select=1:ncpus=2:mem=9gb:gpu_type=a100"
    text = f'system = "pbs"\ngpus = 1\ndirectives = ["{own}"]\n'
    script = JobFile.read(job_file(tmp_path, text)).script(threads=1)
    assert [line for line in script.splitlines() if "select" in line] == [f"#PBS {own}"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (('memory = "32GB"', 'memory = "lots"'), r"cluster\.toml: memory: .*'lots'"),
        (
            ("cores = 8", "core = 8"),
            r"cluster\.toml: core: not a key of a cluster file \(known: system, workers.*, disk\)$",
        ),
        (("queue", "partition"), r"cluster\.toml: partition: not a key .*; write queue$"),
        (("gpus = 1", "gpus = -1"), r"cluster\.toml: gpus: Input should be greater than or equal"),
        (('"slurm"', '"torque"'), r"cluster\.toml: system: Input should be 'slurm', 'pbs'"),
        (("workers = 4", "workers = "), r"cluster\.toml: cannot be read as TOML"),
    ],
)
def test_a_file_that_says_what_is_not_known_is_refused(
    tmp_path: Path, changed: tuple[str, str], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        JobFile.read(job_file(tmp_path, SLURM.replace(*changed)))


def test_ctrl_c_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The import of dask-jobqueue makes it an exit without a word."""
    (tmp_path / "dask_jobqueue.py").write_text(JOBQUEUE)
    monkeypatch.delitem(sys.modules, "dask_jobqueue")
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    assert JobFile(system="slurm").script(threads=1) == "made"
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
def test_a_grid_is_made_by_the_workers_of_a_job(
    new_toy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    log = tmp_path / "log"
    monkeypatch.setenv("STUB_LOG", str(log))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    text = f'system = "slurm"\nmemory = "2GB"\npython = "{sys.executable}"\n'
    place = fb.Workers(cluster=job_file(tmp_path, text))
    made = new_toy.run(["ncm"], seed="0-1", workers=place)
    assert [run.spec.seed for run in made] == [0, 1]
    assert made[0].accuracies[-1] > 0.9
    assert log.read_text().splitlines()[0].endswith(".sh"), "a script was submitted"
