from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fscil_bench.errors import StoreError
from fscil_bench.store.tensors import load_tensors, save_tensors

TENSORS = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.tensor(3, dtype=torch.int64),
    "c": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "d": torch.empty(0, 5),
    "e": torch.ones(3, dtype=torch.bfloat16),
}


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    save_tensors(tmp_path / "x.safetensors", TENSORS, {"epoch": 3, "losses": [1.5]})
    tensors, meta = load_tensors(tmp_path / "x.safetensors")
    assert meta == {"epoch": 3, "losses": [1.5]}
    for name, tensor in TENSORS.items():
        assert torch.equal(tensors[name], tensor)
        assert tensors[name].dtype == tensor.dtype


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text"])
def test_damage_is_noticed_and_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "x.safetensors"
    save_tensors(path, TENSORS, {})
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-20] ^= 0xFF
    changed = {"truncate": content[:-10], "flip": content, "empty": b"", "text": b"no tensors"}
    path.write_bytes(changed[damage])
    with pytest.raises(StoreError, match=r"x.safetensors: damaged \(.*remove this file"):
        load_tensors(path)
