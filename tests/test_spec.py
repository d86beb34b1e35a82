from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from fscil_bench.spec import RunSpec, digest_of

OF_BOTH = {"seed", "code", "engine"}
CHANCE_AND_CODE = {"shots", *OF_BOTH, *(f"representation.{name}" for name in OF_BOTH)}
PRECISION = "representation.precision"
"""Fields that runs of one table row may differ in."""


def changed(value: Any) -> Any:
    """Return another value of the same kind."""
    if value is None or isinstance(value, str):
        return f"{value}-changed"
    if isinstance(value, dict):
        return {**value, "changed": 1}
    if isinstance(value, tuple):
        return (*value, 1)
    return value + 1


def variants(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, BaseModel]]:
    """Yield a copy of the model for each of its fields, however deep, with that field changed."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        if type(model).model_fields[name].exclude:
            continue
        if isinstance(value, BaseModel):
            for path, inner in variants(value, f"{prefix}{name}."):
                yield path, model.model_copy(update={name: inner})
        else:
            yield f"{prefix}{name}", model.model_copy(update={name: changed(value)})


@pytest.fixture
def spec(factory: Any) -> RunSpec:
    result: RunSpec = factory.spec(params={"steps": 8})
    return result


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_every_field_changes_the_key_and_chance_and_code_alone_leave_the_row(spec: RunSpec) -> None:
    keys = {path: variant.key for path, variant in variants(spec)}
    assert {"seed", "protocol.recipe.epochs", "representation.images.size"} <= set(keys)
    assert [path for path, key in keys.items() if key == spec.key] == []
    assert len(set(keys.values())) == len(keys)
    same = {path for path, variant in variants(spec) if variant.row == spec.row}
    assert same == CHANCE_AND_CODE | {PRECISION, "representation.backbone_code"}
    trained = spec.representation
    network = {path for path, other in variants(trained) if other.training == trained.training}
    assert network == {"precision", "code", "engine", "backbone_code"}


@pytest.mark.parametrize("path", sorted(CHANCE_AND_CODE - {"shots"}))
def test_code_changes_the_version_and_seeds_do_not(spec: RunSpec, path: str) -> None:
    assert (dict(variants(spec))[path].version == spec.version) == path.endswith("seed")


def test_representation_key_leaves_out_the_method(factory: Any) -> None:
    ncm = factory.spec("ncm", seed=0).representation
    assert ncm.key == factory.spec("ldc", seed=3).representation.key
    assert ncm.key != factory.spec(representation={"seed": 1}).representation.key


def test_key_is_sixteen_hexadecimal_digits_and_the_same_in_another_process(spec: RunSpec) -> None:
    assert len(spec.key) == 16 and set(spec.key) <= set("0123456789abcdef")
    program = (
        "import sys; from fscil_bench.spec import RunSpec; "
        "spec = RunSpec.model_validate_json(sys.stdin.read()); "
        "print(spec.key, spec.row, spec.version)"
    )
    command, told = [sys.executable, "-c", program], spec.model_dump_json()
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [spec.key, spec.row, spec.version]


def test_digest_ignores_the_order_of_names() -> None:
    assert digest_of({"a": 1, "b": (2, 3)}) == digest_of({"b": [2, 3], "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 1.5})
