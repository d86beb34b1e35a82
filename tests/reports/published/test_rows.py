from __future__ import annotations

import csv
import math
from collections import Counter
from pathlib import Path

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.reports.published import PublishedRow, chosen_published, published_rows
from fscil_bench.reports.published.rows import FOLDER, Counterpart

PROTOCOLS = ("cub200", "cifar100", "mini_imagenet")


def protocol(name: str) -> Protocol:
    return load_registry().protocol(name)[0]


def row(name: str, method: str) -> PublishedRow:
    return next(row for row in published_rows(protocol(name)) if row.method == method)


def lines(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_is_what_its_first_source_prints() -> None:
    ldc = row("cub200", "LDC")

    accuracies = ldc.accuracies(10)
    assert (accuracies[0], accuracies[1], accuracies[10]) == (77.89, 76.93, 61.58)
    assert ldc.figures(10)["performance_drop"] == pytest.approx(16.31)
    assert ldc.figures(10)["performance_retention"] == pytest.approx(100 * 61.58 / 77.89)
    (source,) = {value.source.paper for value in ldc.values.values()}
    assert source.reference == (
        '"Learnable Distribution Calibration for Few-Shot Class-Incremental Learning", 2022, '
        "arXiv:2210.00232, https://arxiv.org/abs/2210.00232"
    )
    assert (ldc.backbone, ldc.pretraining, ldc.terms.epochs) == ("ResNet18", "not stated", "100")


def test_rows_are_second_hand_where_others_print_them() -> None:
    first = {row.method for row in published_rows(protocol("cub200")) if not row.second_hand}

    assert {"LDC", "TOPIC", "iCaRL", "Ft-CNN*", "Free-Lunch (LDC re-impl.)"} < first
    assert not {"CEC", "ALICE", "MetaFSCIL", "F2M"} & first


def test_the_best_last_session_ends_the_table() -> None:
    last = [row.accuracies(8)[-1] for row in published_rows(protocol("cifar100"))]

    assert len(last) > 30
    assert last == sorted(last)


def test_what_sources_contradict_is_kept_apart() -> None:
    tuned = row("cub200", "Ft-CNN")

    assert tuned.values[7].text == "10.60"
    assert [(value.session, value.text) for value in tuned.others] == [(7, "10.06")]
    for name in PROTOCOLS:
        for each in published_rows(protocol(name)):
            assert all(other.text != each.values[other.session].text for other in each.others)


def test_sessions_that_nobody_printed_are_not_known() -> None:
    ldc = row("mini_imagenet", "LDC")

    assert [math.isnan(value) for value in ldc.accuracies(8)] == [True] * 8 + [False]
    assert all(math.isnan(value) for value in ldc.figures(8).values())


def test_a_protocol_has_the_rows_of_the_one_it_takes_its_shots_from(
    toy_protocol: Protocol,
) -> None:
    assert published_rows(protocol("cifar100_fact")) == published_rows(protocol("cifar100")) != []
    for other in (toy_protocol, protocol("glyphs"), protocol("cub200").override(sessions=5)):
        assert published_rows(other) == []


def test_each_value_is_there_once_with_a_source_that_is_described() -> None:
    known = {line["source"] for line in lines("published_sources.csv")}
    printed = lines("published.csv")
    first = Counter(
        (line["protocol"], line["method"], line["session"])
        for line in printed
        if line["disagrees"] == "0"
    )

    assert set(first.values()) == {1}
    assert {line["source"] for line in printed} == known
    assert all(0 < float(line["accuracy"]) < 100 for line in printed)
    assert {line["protocol"] for line in printed} == set(PROTOCOLS)


def test_each_paper_prints_something_and_has_a_link_where_it_has_a_number() -> None:
    sources = lines("published_sources.csv")
    texts = [each["printed_in"] for each in sources]
    texts += [text for each in sources for text in each["repeated_in"].split("; ")]
    for paper in lines("published_papers.csv"):
        assert any(text.startswith(paper["begins"]) for text in texts), paper
        number = paper["number"].partition(":")[2]
        assert paper["link"].endswith(number), paper


@pytest.mark.parametrize(
    "table", ["published_terms.csv", "published_recipes.csv", "published_printed.csv"]
)
def test_what_is_said_of_rows_is_said_of_rows_that_are_there(table: str) -> None:
    rows = {(line["protocol"], line["method"]) for line in lines("published.csv")}

    said = [(line["protocol"], line["method"]) for line in lines(table)]

    assert set(said) <= rows
    assert table == "published_printed.csv" or len(said) == len(set(said))


def test_trainings_have_a_source_and_a_counterpart() -> None:
    for line in lines("published_recipes.csv"):
        assert line["source"] and line["counterpart"] and line["representation"], line


def test_cecs_training_by_hand() -> None:
    found = row("cifar100", "Decoupled-Cosine")

    assert found.counterpart == Counterpart(
        "ncm", {"space": "raw", "mean": "raw", "balanced": "0"}, "cosine", {}
    )
    told = found.training
    assert (found.terms.epochs, told.batch_size, told.lr, told.weight_decay) == (
        *("100", "128", "0.1", "0.0005"),
    )
    assert (told.schedule, told.augment, told.temperature) == (
        *("step, 0.1 at 60, 70", "crop, flip", "16"),
    )
    assert row("cifar100", "C-FSCIL").counterpart is None


def test_orcos_training_by_hand() -> None:
    """Phase 2 keeps the projector that is best on test images; phase 1 saves each 20th epoch."""
    for protocol, epochs, backbone in (
        ("cifar100", "300", "ResNet12"),
        ("mini_imagenet", "400", "ResNet18"),
    ):
        found = row(protocol, "OrCo")
        assert found.counterpart == Counterpart("orco", {}, "orco", {})
        assert found.test_chosen and (found.terms.epochs, found.backbone) == (epochs, backbone)
        told = found.training
        assert (told.batch_size, told.lr, told.precision) == ("512", "0.8", "fp16")
        # AutoAugment takes the place of the colours and the blur that the arguments name, too.
        assert "augment (timm" in told.augment and "jitter" not in told.augment


def test_what_other_released_code_chose_on_test_images_by_hand() -> None:
    """F2M's sessions load the best network; all of TOPIC's trainers pick an epoch a session."""
    for name in PROTOCOLS:
        for method in ("F2M", "Ft-CNN", "iCaRL", "EEIL", "TOPIC-AL"):
            assert row(name, method).test_chosen, (name, method)
        assert row(name, "SPPR (repo checkpoint)").terms.chosen_on_test == "none: last epoch"


def test_no_table_names_a_place_on_a_machine() -> None:
    for path in Path(FOLDER).glob("published*.csv"):
        text = path.read_text(encoding="utf-8")
        assert "index id" not in text
        assert "/work" not in text


def test_rows_are_chosen_by_their_names_or_the_paper_that_prints_them() -> None:
    rows = published_rows(protocol("cub200"))

    def chosen(names: str) -> set[str]:
        return {row.method for row in chosen_published(rows, names)}

    assert chosen_published(rows, "all") == rows
    assert chosen_published(rows, " none ") == []
    assert chosen("FACT; CEC") == {"CEC", "FACT"}
    # The paper's table of CUB200, and its ablation; iCaRL and TOPIC are printed elsewhere first.
    assert chosen("paper:LDC") == {
        *("Ft-CNN*", "iCaRL", "TOPIC", "SPPR", "FSLL", "SFMS", "CEC", "MetaFSCIL", "FACT", "LDC"),
        "Free-Lunch (LDC re-impl.)",
        "LDC ablation: + Gaussian sampler",
        "LDC ablation: baseline (no PCU)",
    }
    assert chosen("paper:LDC; ALICE") == {"ALICE"} | chosen("paper:LDC")
    for names, words in (("FCT", "'FCT'; did you mean 'FACT'"), ("paper:LCD", "'paper:LDC'")):
        with pytest.raises(UsageError, match=words):
            chosen_published(rows, names)
    with pytest.raises(UsageError, match="nothing is published for this protocol"):
        chosen_published([], "FACT")
