"""Where the files of a part of a report go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fscil_bench.api import make_report
from fscil_bench.params import params_dict
from fscil_bench.plugins.registry import load_registry
from fscil_bench.store.runs import Store


@pytest.mark.parametrize(
    ("report", "part"),
    [("main-table", "method=ldc"), ("card", "method=ldc"), ("site", "method=ldc")],
)
def test_a_part_goes_into_a_folder_of_its_own(
    factory: Any, store: Store, tmp_path: Path, report: str, part: str
) -> None:
    factory.write(factory.spec("ldc"))
    out = tmp_path / "out"

    output = make_report(report, "toy", methods=["ldc"], results=store.results, folder=out)

    assert {path.parent for path in output.files if path.suffix == ".md"} == {out / part}


def test_a_study_of_some_seeds_is_the_study(factory: Any, store: Store, tmp_path: Path) -> None:
    registry = load_registry()
    protocol = registry.protocol("glyphs")[0]
    params, cosine = (
        params_dict(registry.get(kind, name).value.Params())
        for kind, name in (("method", "ldc"), ("representation", "cosine"))
    )
    spec = factory.spec("ldc", 0, protocol, representation={"params": cosine}, params=params)
    factory.write(spec, [(400, 0)] * 9)

    output = make_report(
        "ablation", "glyphs", seeds=[0], results=store.results, folder=tmp_path / "out"
    )

    assert {path.parent for path in output.files} == {tmp_path / "out"}
