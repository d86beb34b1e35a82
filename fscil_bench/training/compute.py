"""Where and how precisely networks compute: devices, precision, and what the machine gives."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from fscil_bench.errors import UsageError
from fscil_bench.spec import Precision


def resolve_device(name: str) -> torch.device:
    """Return the device: `auto` is a GPU where there is one, else the CPU.

    Raises:
        UsageError: the name is no device, or the device is not there.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"device {name!r} cannot be used here: {reason}") from error
    return device


def resolve_precision(choice: str, device: torch.device) -> Precision:
    """Return the precision of base training: `auto` is bf16 where the hardware computes it.

    Raises:
        UsageError: an unknown choice.
    """
    if choice == "auto":
        return "bf16" if _computes_bf16(device) else "fp32"
    known: dict[str, Precision] = {name: name for name in get_args(Precision)}
    if choice not in known:
        raise UsageError(f"unknown precision {choice!r}; known: auto, {', '.join(known)}")
    return known[choice]


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
    packages = {"torch": torch.__version__, "numpy": np.__version__}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "packages": packages,
    }


def peak_memory() -> int:
    """Return the most bytes this process has had resident so far; 0 where that is not known."""
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


def too_many_threads(threads: int) -> str:
    """Return a warning if `threads` have to share fewer cores; empty if not, or not known.

    They then wait for one another, which can make training many times slower.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return ""
    if threads <= cores:
        return ""
    return (
        f"PyTorch computes with {threads} threads, but this process may use {cores} "
        f"{'core' if cores == 1 else 'cores'}: that is slow; set OMP_NUM_THREADS={cores}"
    )
