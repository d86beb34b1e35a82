"""Tensor files that cannot execute anything, and that tell when they are damaged."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from fscil_bench.errors import StoreError, WriteError
from fscil_bench.store.files import replaced_file


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor], meta: Mapping[str, Any]) -> None:
    """Write tensors and plain metadata atomically, in safetensors format, with a digest.

    Raises:
        StoreError: the file cannot be written.
    """
    ready = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    header = {"meta": json.dumps(meta), "digest": _digest(ready)}
    try:
        with replaced_file(path) as new:
            save_file(ready, new, metadata=header)
    except SafetensorError as error:
        raise WriteError(
            f"{path}: cannot be written ({error}); choose another folder with "
            "--results, --cache or --out, or make room"
        ) from error


def load_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote.

    Raises:
        StoreError: the file is damaged; the message says which to remove.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        meta: dict[str, Any] = json.loads(header["meta"])
        intact = header["digest"] == _digest(tensors)
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise StoreError(_damaged(path, str(error) or type(error).__name__)) from error
    if not intact:
        raise StoreError(_damaged(path, "its digest does not match its content"))
    return tensors, meta


def stored_digest(path: Path) -> str:
    """Return the digest that `save_tensors` wrote with the tensors, without reading these.

    Raises:
        StoreError: the file is missing or damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return str((file.metadata() or {})["digest"])
    except (SafetensorError, OSError, KeyError) as error:
        raise StoreError(_damaged(path, str(error) or type(error).__name__)) from error


@dataclass(frozen=True)
class FileCheckpoint:
    """The state of a stage in a file that executes nothing; see `fscil_bench.method.Checkpoint`.

    Attributes:
        path: the file.
        title: what the stage is called in messages.
        say: shows them.
    """

    path: Path
    title: str
    say: Callable[[str], None]

    def load(self) -> dict[str, Any] | None:
        """Return what was saved last; None if nothing was, or it is damaged."""
        if not self.path.exists():
            return None
        try:
            digest, _, content = self.path.read_bytes().partition(b"\n")
            if hashlib.sha256(content).hexdigest().encode() != digest:
                raise ValueError("its digest does not match its content")
            state: dict[str, Any] = torch.load(BytesIO(content), "cpu", weights_only=True)
        except Exception as error:  # what another version wrote may fail in any way
            self.say(f"{self.title} begins anew: {self.path} is damaged ({error})")
            return None
        self.say(f"{self.title} goes on where it was stopped")
        return state

    def save(self, state: dict[str, Any]) -> None:
        """Keep it, atomically; where that fails, say so, and let the work go on."""
        buffer = BytesIO()
        torch.save(state, buffer)
        content = buffer.getvalue()
        digest = hashlib.sha256(content).hexdigest().encode()
        try:
            with replaced_file(self.path) as new:
                new.write_bytes(digest + b"\n" + content)
        except WriteError as error:
            self.say(f"warning: {self.title}: a stop would lose what is done so far: {error}")

    def remove(self) -> None:
        """Forget what was saved, and the folder if nothing else is there, where that can be."""
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
            self.path.parent.rmdir()


def _damaged(path: Path, reason: str) -> str:
    return f"{path}: damaged ({reason}); remove this file, and what it held is made again"


def _digest(tensors: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if tensor.numel():
            digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
