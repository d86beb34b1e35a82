"""A series of runs, groups of methods, and parameters stated for a protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from fscil_bench.errors import FscilError, UsageError, WriteError
from fscil_bench.method import Method, Needs
from fscil_bench.params import NoParams, published_params
from fscil_bench.plugins.registry import Plugin, Registry, expand_methods, load_registry
from fscil_bench.progress import Silent
from fscil_bench.running.commands import default_params
from fscil_bench.running.series import (
    fitting_methods,
    make_all,
    refuse_uncarried,
    without_their_own,
)
from fscil_bench.store.files import write_text


def registry() -> Registry:
    found = Registry()
    kinds = {"frozen": Needs(), "images": Needs(images=True), "virtual": Needs(extras=("virtual",))}
    for name, needs in kinds.items():
        value = type(name, (Method,), {"name": name, "needs": needs, "Params": NoParams})
        found.add(Plugin("method", name, value, Path("m.py"), "test"))
    for name, extras in {"plain": (), "rich": ("virtual",)}.items():
        value = type(name, (), {"name": name, "extras": extras})
        found.add(Plugin("representation", name, value, Path("r.py"), "test"))
    return found


def test_words_stand_for_groups_of_methods() -> None:
    assert expand_methods(["all-frozen"], registry()) == ["frozen", "virtual"]
    assert expand_methods(["all-images", "frozen"], registry()) == ["images", "frozen"]
    assert set(expand_methods(["images", "all"], registry())) == {"frozen", "images", "virtual"}
    with pytest.raises(UsageError, match="all-images"):
        expand_methods(["all-images"], Registry())


def test_the_cheap_ones_of_a_group_come_first() -> None:
    found = registry()
    pretrain = {"pretrain": lambda *_: {}}
    for name, needs in (("a_views", Needs(base_views=("rot90",))), ("b_pretrained", Needs())):
        value = type(name, (Method,), {"name": name, "needs": needs, **pretrain})
        found.add(Plugin("method", name, value, Path("m.py"), "test"))
    everything = ["frozen", "virtual", "b_pretrained", "a_views", "images"]
    assert expand_methods(["all"], found) == everything


def test_a_group_leaves_out_what_a_representation_cannot_carry() -> None:
    names = ["frozen", "virtual"]
    said: list[str] = []
    assert fitting_methods(["all-frozen"], "rich", registry(), said.append) == names
    assert fitting_methods(["all-frozen"], "plain", registry(), said.append) == ["frozen"]
    (line,) = said
    assert "virtual is left out on representation plain" in line
    assert "'virtual' come with representation rich" in line
    refuse_uncarried("virtual", ["plain", "rich"], registry())
    with pytest.raises(UsageError, match="come with representation rich and not with plain"):
        refuse_uncarried("virtual", ["plain"], registry())


def test_a_method_with_a_representation_of_its_own_is_named() -> None:
    found = load_registry(())
    (line,) = without_their_own(["ldc", "orco", "f2m"], ["cosine", "f2m"], found)
    assert line == "orco is published on --representation orco; here it stands on cosine, f2m"


def test_defaults_for_a_protocol_are_what_its_paper_states() -> None:
    found = load_registry(())
    protocol, _ = found.protocol("cub200")
    assert default_params(found, "representation", "fact")["virtual"] == 40
    assert default_params(found, "representation", "fact", protocol)["virtual"] == 100
    assert published_params(NoParams, ("cub200",)) == {}
    variant, _ = found.protocol("cifar100_fact")
    assert default_params(found, "representation", "fact", variant)["gamma"] == 0.001


def test_nothing_more_is_begun_once_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    begun: list[str] = []

    def make(plan: str) -> None:
        begun.append(plan)
        if plan == "broken":
            raise ValueError(plan)
        write_text(tmp_path / plan / "run.json", "{}")

    def told(title: str, made: object) -> None:
        del title, made

    with pytest.raises(WriteError, match=r"file: cannot be written .*make room"):
        make_all(["a", "broken", "file", "b"], make, str, Silent(), told)
    assert begun == ["a", "broken", "file"]
    with pytest.raises(FscilError, match="1 of 2 runs failed; the others are stored"):
        make_all(["broken", "b"], make, str, Silent(), told)
