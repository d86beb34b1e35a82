"""What all runs of a study share."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fscil_bench.plugins.registry import load_registry
from fscil_bench.reports.ldc.terms import StudyParams, Terms


def test_the_dimension_of_features_from_a_file_is_the_files(tmp_path: Path) -> None:
    labels = np.arange(4)
    arrays = {f"{half}_features": np.ones((4, 7), np.float32) for half in ("train", "test")}
    arrays |= {f"{half}_labels": labels for half in ("train", "test")}
    np.savez(tmp_path / "f.npz", **arrays)
    shape = "classes = 4\nbase_classes = 2\nway = 1\nshot = 1\nsessions = 2\n"
    toml = tmp_path / "own.toml"
    toml.write_text(f'name = "own"\ntitle = "Own"\nfeatures = "f.npz"\n{shape}', encoding="utf-8")
    registry = load_registry()
    name = registry.add_protocol_file(toml)
    protocol, _ = registry.protocol(name)
    assert Terms(protocol, registry, StudyParams()).dim == 7
    assert Terms(registry.protocol("glyphs")[0], registry, StudyParams()).dim == 64
