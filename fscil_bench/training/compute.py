"""Where and how precisely networks compute: devices, precision, and what the machine gives."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from fscil_bench.backbone import Backbone
from fscil_bench.errors import UsageError
from fscil_bench.spec import Precision, digest_of
from fscil_bench.store.files import write_text

CLEARLY_FASTER = 1.15
"""How many times faster bf16 must be to be chosen: below, precision is given away for nothing."""
MEASURED_BATCH, MEASURED_STEPS = 32, 4


def resolve_device(name: str) -> torch.device:
    """Return the device: `auto` is a GPU (CUDA's or Apple's) where there is one, else the CPU.

    Raises:
        UsageError: the name is no device, or the device is not there.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise RuntimeError("nothing is computed on it")
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"device {name!r} cannot be used here: {reason}") from error
    return device


def check_precision(choice: str) -> None:
    """Refuse a precision that is not known.

    Raises:
        UsageError: it is not.
    """
    if choice not in ("auto", *get_args(Precision)):
        known = ", ".join(("auto", *get_args(Precision)))
        raise UsageError(f"unknown precision {choice!r}; known: {known}")


def faster_precision(
    backbone: Backbone,
    size: int,
    device: torch.device,
    cache: Callable[[str], Path],
) -> Precision:
    """Return bf16 if a training step of the backbone is measured to be clearly faster in it.

    Hardware that computes bf16 can still be slower in it. Measured once a machine, number of
    threads and version of PyTorch; what was measured is kept as JSON in a folder of the cache.

    Args:
        backbone: the network.
        size: of its input, in pixels.
        device: where it is to be trained.
        cache: a folder for what is measured, by key.
    """
    if not _computes_bf16(device):
        return "fp32"
    terms = [
        backbone.called,
        size,
        str(device),
        torch.__version__,
        torch.get_num_threads(),
        _processor(),
    ]
    folder = cache(digest_of(terms))
    file = folder / "measured.json"
    try:
        ratio = float(json.loads(file.read_text(encoding="utf-8"))["fp32_over_bf16"])
    except (OSError, ValueError, KeyError, TypeError):
        seconds = _step_seconds(backbone, size, device)
        ratio = seconds["fp32"] / seconds["bf16"]
        told = {"terms": terms, "seconds_a_step": seconds, "fp32_over_bf16": ratio}
        write_text(file, json.dumps(told, indent=1) + "\n")
    return "bf16" if ratio >= CLEARLY_FASTER else "fp32"


def _step_seconds(backbone: Backbone, size: int, device: torch.device) -> dict[str, float]:
    """Return the seconds of a training step at each precision: the least of a few, in turn."""
    network = backbone.fresh(0).to(device).train()
    images = torch.randn(MEASURED_BATCH, 3, size, size, device=device)
    seconds = {name: math.inf for name in get_args(Precision)}
    for number in range(1 + MEASURED_STEPS):
        for name in seconds:
            started = time.perf_counter()
            with autocast(name, device):
                total = network(images).float().sum()
            total.backward()
            float(total.detach())  # waits for the device
            if number:  # the first step of each also prepares
                seconds[name] = min(seconds[name], time.perf_counter() - started)
    return seconds


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Return the context in which a forward pass computes at `precision`."""
    if precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return nullcontext()


def _computes_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu":
        return False
    capabilities = getattr(torch.cpu, "get_capabilities", None)
    if capabilities is not None:
        return bool(capabilities().get("avx512_bf16", False))
    # Before torch 2.10 the same question has only a private answer.
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(supported and supported())


def environment(device: torch.device) -> dict[str, Any]:
    """Return what a reader needs to judge whether a figure can be expected again."""
    packages = {"torch": str(torch.__version__), "numpy": np.__version__}  # a plain text
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "packages": packages,
    }


def forget_peak_memory() -> None:
    """Let `peak_memory` count from now on, where the system can (Linux)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Return the most bytes this process has had resident so far; 0 where that is not known."""
    # What `resource` tells begins with the parent's peak, and is not forgotten.
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        if found := re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE):
            return 1024 * int(found[1])
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def load_per_core() -> float:
    """Return the processes that wanted to run in the last minute, by core; 0 where not known.

    Above 1 they had to share cores, so that times are too long.
    """
    try:
        recent = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on Windows, and not in every container
        return 0.0
    return round(recent / (os.cpu_count() or 1), 2)


def settle_threads(asked: int | None) -> str:
    """Let PyTorch use so many threads, or as many as cores are free now; say what was chosen.

    Two processes with a thread for every core wait for one another, and train ten times slower.
    Where OMP_NUM_THREADS is set, it is kept. The answer is empty where nothing was changed.

    Raises:
        UsageError: no such number of threads can be had.
    """
    cores = usable_cores()
    if asked is not None:
        if not 1 <= asked <= 4096:
            raise UsageError(f"--threads {asked}: give a number from 1 on; {cores} cores are here")
        torch.set_num_threads(asked)
        if asked > cores:
            return f"{asked} threads share {cores} core{'s' * (cores > 1)}: that is slow"
        return ""
    if "OMP_NUM_THREADS" in os.environ:
        return ""
    free = min(cores, free_cores())
    if free >= torch.get_num_threads():
        return ""
    torch.set_num_threads(free)
    return (
        f"computing with {free} thread{'s' * (free > 1)}: of {cores} cores so many are free now "
        "(--threads N for another number)"
    )


def free_cores(seconds: float = 0.3) -> int:
    """Return how many cores had nothing to do for a moment, at least 1; all where not known."""
    first = _idle_ticks()
    if first is None:
        return os.cpu_count() or 1
    time.sleep(seconds)
    second = _idle_ticks() or first
    idle = [b[0] - a[0] for a, b in zip(first, second, strict=False)]
    total = [b[1] - a[1] for a, b in zip(first, second, strict=False)]
    return max(1, sum(i > t / 2 for i, t in zip(idle, total, strict=True)))


def _idle_ticks() -> list[tuple[int, int]] | None:
    """Return idle and all ticks of each core since the start, of Linux alone."""
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    rows = [line.split()[1:] for line in lines if re.match(r"cpu\d", line)]
    return [(int(row[3]) + int(row[4]), sum(map(int, row[:8]))) for row in rows] or None


def usable_cores() -> int:
    """Return the cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1
