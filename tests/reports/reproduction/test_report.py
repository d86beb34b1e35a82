from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.metrics import Interval
from fscil_bench.params import parse_params
from fscil_bench.plugins.registry import load_registry
from fscil_bench.report import Document, Section, Table
from fscil_bench.reporting.document import markdown
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.published import PublishedRow, published_rows
from fscil_bench.reports.reproduction.report import Reproduction, verdict
from fscil_bench.reports.reproduction.terms import (
    FIELDS,
    FILL,
    differing,
    obstacles,
    published_terms,
    recipe_terms,
)
from fscil_bench.request import Selection
from fscil_bench.running.commands import default_params
from fscil_bench.store.runs import Store
from fscil_bench.training.augment import augment

REGISTRY = load_registry()
SESSIONS = [(447 - 8 * t, 12 * t) for t in range(9)]
"""Right predictions after each session: 74.50 % of 600 images first, 47.9 % of 1,000 last."""


@pytest.fixture
def write(factory: Any) -> Callable[..., None]:
    """Return a function that writes a run of a method as a registered protocol has it.

    `more` new images are right in the last session.
    """

    def written(
        method: str,
        protocol: str = "cifar100_cec",
        *,
        seed: int = 0,
        more: int = 0,
        representation: str = "cosine",
        flags: Sequence[str] = (),
        changes: dict[str, Any] | None = None,
        split: str = "seeded",
        **params: Any,
    ) -> None:
        own = REGISTRY.protocol(protocol)[0].override(**(changes or {}))
        brought = default_params(REGISTRY, "representation", representation, own)
        spec = factory.spec(
            method,
            seed,
            own,
            {"name": representation, "params": brought},
            params=default_params(REGISTRY, "method", method, own) | params,
            split=split,
        )
        base, new = SESSIONS[-1]
        factory.write(spec, [*SESSIONS[:-1], (base, new + more)], flags=tuple(flags))

    return written


@pytest.fixture
def ledger(store: Store) -> Callable[..., Document]:
    """Return a function that builds the ledger of what is stored."""

    def build(protocol: str | None = "cifar100", every: bool = False, **asked: Any) -> Document:
        results = Results(REGISTRY, Selection(protocol, **asked), tuple(store.runs()[0]))
        return Reproduction(results).build(results.frame, Reproduction.Params(every))

    return build


def lines_of(document: Document, name: str = "reproduction") -> list[dict[str, Any]]:
    parts = [*document.parts]
    parts += [part for each in parts if isinstance(each, Section) for part in each.parts]
    tables = [part for part in parts if isinstance(part, Table) and part.name == name]
    return [line for table in tables for line in table.frame.to_dict("records")]


def row(protocol: str, method: str) -> PublishedRow:
    rows = published_rows(REGISTRY.protocol(protocol)[0])
    return next(each for each in rows if each.method == method)


def test_a_line_by_hand(write: Any, ledger: Any) -> None:
    for seed in range(3):
        write("ncm", seed=seed, more=-3 + seed)

    (line,) = lines_of(ledger())

    assert (line["published_name"], line["measured"], line["runs"]) == (
        "Decoupled-Cosine",
        "NCM",
        3,
    )
    assert line["protocol"] == "cifar100_cec"
    # 447/600 beside 74.55; 476, 477 and 478 of 1,000 beside 47.68, t(0.975, 2) · 0.1 / √3.
    assert line["first_difference_mean"] == pytest.approx(-0.05)
    assert line["first_difference_half_width"] == 0
    assert line["last_mean"] == pytest.approx(47.7)
    assert line["last_difference_mean"] == pytest.approx(0.02)
    assert line["last_difference_half_width"] == pytest.approx(4.302653 * 0.1 / 3**0.5)
    assert line["average_published"] == row("cifar100", "Decoupled-Cosine").figures(8)["average"]
    assert line["verdict"] == "yes"


def test_cecs_recipe_differs_from_the_published_one_in_nothing_that_a_recipe_decides(
    write: Any, ledger: Any
) -> None:
    write("ncm", flags=["unofficial data: another order"])

    document = ledger()

    assert [line["field"] for line in lines_of(document, "terms")] == [
        *("images a batch normalisation", "checkpoint", "session 0 scored by", "shots", "data"),
    ]
    (line,) = lines_of(document)
    assert line["differs"] == ", ".join(each["field"] for each in lines_of(document, "terms"))
    assert line["verdict"] == "cannot be told", "a single run has no interval"


@pytest.mark.parametrize(
    ("protocol", "method"),
    [
        ("cifar100_cec", "Decoupled-Cosine"),
        ("cifar100_cec", "CEC"),
        ("cifar100_fact", "FACT"),
        ("cifar100_fact", "TEEN"),
    ],
)
def test_recipe_protocols_are_the_released_recipes(protocol: str, method: str) -> None:
    own = REGISTRY.protocol(protocol)[0]

    found = differing(published_terms(row(protocol, method)), recipe_terms(own.recipe, own.images))

    assert set(found) <= {
        *("images a batch normalisation", "checkpoint", "AutoAugment fills with"),
    }
    assert obstacles(row(protocol, method), own.backbone, own.pretraining) == []


@pytest.mark.parametrize("protocol", ["cub200", "cifar100", "mini_imagenet"])
def test_counterparts_are_plug_ins_and_have_the_parameters_named(protocol: str) -> None:
    rows = published_rows(REGISTRY.protocol(protocol)[0])
    own = [row.counterpart for row in rows if row.counterpart is not None]

    assert len(own) > 5
    for each in own:
        for kind, name, params in (
            ("method", each.method, each.params),
            ("representation", each.representation, each.representation_params),
        ):
            parse_params(name, REGISTRY.get(kind, name).value.Params, params)


def test_autoaugment_is_said_to_fill_with_what_it_fills_with() -> None:
    white = torch.full((64, 32, 32, 3), 255, dtype=torch.uint8)

    moved = augment(white, ["autoaugment_cifar10"], torch.Generator().manual_seed(0))

    corners = moved[:, 0, 0].unique(dim=0)
    assert FILL == "black" and [0, 0, 0] in corners.tolist()
    assert [128, 128, 128] not in corners.tolist()


def test_on_another_recipe_its_fields_are_told(write: Any, ledger: Any) -> None:
    write("teen", "cifar100")
    write("ncm", "cifar100")

    fields = {line["field"]: line for line in lines_of(ledger(), "terms")}

    assert (fields["epochs"]["published"], fields["epochs"]["measured"]) == ("600", "100")
    assert fields["schedule"]["measured"] == "step, 0.1 at 60, 70"
    assert (fields["augmentation"]["published"], fields["augmentation"]["rows"]) == (
        "crop, flip",
        "Decoupled-Cosine (cifar100)",
    )
    assert fields["shots"]["rows"] == "Decoupled-Cosine (cifar100); TEEN (cifar100)"
    assert "temperature" not in fields
    assert list(fields) == [name for name in FIELDS if name in fields]


def test_one_method_answers_all_rows_of_its_name_on_all_recipes(write: Any, ledger: Any) -> None:
    for protocol in ("cifar100", "cifar100_fact"):
        write("fact", protocol, representation="fact")
    write("fact", "cifar100", changes={"epochs": 5}, representation="fact")

    pairs = [(line["published_name"], line["protocol"]) for line in lines_of(ledger())]

    assert pairs == [
        *[("FACT", "cifar100"), ("FACT", "cifar100_fact")],
        *[("FACT (released log)", "cifar100"), ("FACT (released log)", "cifar100_fact")],
    ]
    assert len(lines_of(ledger(every=True))) == 6


def test_only_what_is_meant_to_be_the_same_answers(write: Any, ledger: Any) -> None:
    write("ncm", space="tukey")
    write("teen", alpha=0.4)
    write("teen", representation="fact")
    write("ldc")

    assert lines_of(ledger()) == []


def test_rows_of_another_backbone_are_not_compared(write: Any, ledger: Any) -> None:
    for seed in range(2):
        write("nc_fscil", seed=seed)

    (line,) = lines_of(ledger())

    assert line["verdict"] == "not comparable"
    assert line["differs"].startswith("backbone ResNet12, here resnet20, objective")
    assert line["last_difference_mean"] != line["last_difference_mean"]


def test_what_is_lacking_is_asked_for_on_the_nearest_recipe(write: Any, ledger: Any) -> None:
    write("ncm")

    lacks = {lack.what: lack.command for lack in ledger().lacks}

    assert set(lacks) == {
        *("for CEC", "for TEEN", "for FACT, FACT (released log)", "for SAVC"),
        *("for LIMIT (released log), LIMIT", "for MetaFSCIL"),
    }
    drawn = "--split seeded --seeds 0-9"  # as all that are stored are
    assert f"--method cec_trained --protocol cifar100_cec {drawn}" in lacks["for CEC"]
    assert f"--method teen --protocol cifar100_fact {drawn}" in lacks["for TEEN"]
    of_fact = lacks["for FACT, FACT (released log)"]
    assert "--protocol cifar100_fact --representation fact" in of_fact

    write("ldc", "cifar100", split="outlier:0.2")  # drawn as well
    assert {lack.what: lack.command for lack in ledger().lacks} == lacks
    write("ncm", "cifar100", split="canonical")
    assert not [lack for lack in ledger().lacks if "--split" in lack.command]


def test_run_missing_asks_for_the_same(write: Any, store: Store) -> None:
    write("teen")
    for stored, split in ((tuple(store.runs()[0]), None), ((), "seeded")):
        selection = Selection("cifar100", methods=("ncm",), seeds=(1,), split=split)
        results = Results(REGISTRY, selection, stored)

        (wanted,) = Reproduction(results).requests(Reproduction.Params())

        request = wanted.request
        assert (request.method, request.protocol, request.seed) == ("ncm", "cifar100_cec", 1)
        assert (request.split, request.params["space"]) == ("seeded", "raw")


def test_without_a_protocol_all_that_is_stored_is_shown(write: Any, ledger: Any) -> None:
    with pytest.raises(FscilError, match="no stored run is of a protocol that papers print"):
        ledger(None)
    write("ncm")

    assert [line["protocol"] for line in lines_of(ledger(None))] == ["cifar100_cec"]


def test_rows_that_no_run_can_be_compared_with_are_named(ledger: Any) -> None:
    (told,) = (part for part in ledger().parts if str(part).startswith("No run is asked"))
    assert "F2M (TOPIC split)" in told and "Decoupled-Cosine" not in told


def test_a_protocol_without_published_rows_has_no_ledger(ledger: Any) -> None:
    with pytest.raises(UsageError, match="no paper prints rows for protocol 'glyphs'"):
        ledger("glyphs")
    with pytest.raises(UsageError, match="unknown protocol 'cifar10'; did you mean"):
        ledger("cifar10")


def test_a_ledger_of_nothing_says_so(ledger: Any) -> None:
    document = ledger()

    assert "Nothing that answers a published row is stored." in markdown(document)
    assert len(document.lacks) == 7


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ((0.5, 0.0), (-1.0, 0.4), "yes"),
        ((1.5, 0.0), (-1.5, 0.0), "yes"),
        ((0.5, 0.0), (-1.2, 0.4), "cannot be told"),
        ((0.5, 0.0), (-2.0, 0.4), "no"),
        ((2.0, 0.4), (0.0, float("nan")), "no"),
        ((0.0, 0.0), (0.0, float("nan")), "cannot be told"),
        ((0.0, 0.0), (float("nan"), float("nan")), "cannot be told"),
    ],
)
def test_the_verdict(first: tuple[float, float], last: tuple[float, float], expected: str) -> None:
    assert verdict([Interval(*first, 3), Interval(*last, 3)]) == expected
