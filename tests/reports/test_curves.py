from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.plugins.registry import Registry, load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import ReportOutput
from fscil_bench.reporting.document import write_document
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.curves import Curves
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store

DEFAULTS = {"steps": 8, "widths": [64, 32]}
CIFAR = [(480 - 10 * t, 20 * t) for t in range(9)]


@pytest.fixture
def make(store: Store, tmp_path: Path, registry: Registry) -> Any:
    """Return a function that makes the report of all stored runs into `out`."""
    registry.add(load_registry().get("protocol", "cifar100"))

    def build(protocol: str, **params: Any) -> ReportOutput:
        results = Results(registry, Selection(protocol), tuple(store.runs()[0]))
        document = Curves(results).build(results.frame, Curves.Params(**params))
        return write_document(document, tmp_path / "out", Curves.name)

    return build


@pytest.fixture
def cifar(factory: Any) -> None:
    """Store two runs of CIFAR100."""
    protocol: Protocol = load_registry().get("protocol", "cifar100").value
    factory.write(factory.spec("ncm", protocol=protocol), CIFAR)
    factory.write(factory.spec("ldc", 0, protocol, params=DEFAULTS), [(590, 0), *CIFAR[1:]])


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def labels(output: ReportOutput, name: str, published: str) -> list[str]:
    path = next(path for path in output.files if path.name == name)
    lines = lines_of(path)
    return list(dict.fromkeys(line["label"] for line in lines if line["published"] == published))


@pytest.mark.usefixtures("cifar")
def test_measured_and_published_points_are_told_apart(make: Any) -> None:
    output = make("cifar100", published="CEC; OrCo; C-FSCIL")
    lines = lines_of(next(path for path in output.files if path.name == "curves.csv"))

    assert [path.name for path in output.files] == [
        "curves.md",
        "curves-all.csv",
        "curves.png",
        "curves.pdf",
        "curves.csv",
    ]
    assert labels(output, "curves.csv", "") == ["ldc", "ncm"]
    assert labels(output, "curves.csv", "yes") == ["OrCo †", "C-FSCIL", "CEC †"]
    first = next(line for line in lines if line["label"] == "CEC †")
    assert (first["classes_seen"], first["mean"], first["low"], first["n"]) == (
        "60",
        "73.07",
        "",
        "",
    )
    (orco,) = (line for line in lines if line["label"] == "OrCo †")
    assert (orco["session"], orco["classes_seen"]) == ("8", "100")


@pytest.mark.usefixtures("cifar")
def test_of_all_published_rows_the_best_whole_ones_are_drawn(make: Any) -> None:
    output = make("cifar100", most_published=3)

    drawn = labels(output, "curves.csv", "yes")
    assert len(drawn) == 3
    assert "OrCo" not in drawn, "only its last session is known"
    assert len(labels(output, "curves-all.csv", "yes")) == 39
    assert "3 of 39 published rows" in output.text


@pytest.mark.usefixtures("cifar")
def test_terms_of_published_lines_are_said(make: Any) -> None:
    text = make("cifar100", published="CEC").text

    assert "Epoch chosen on test data, by base-class accuracy in the first stage and last" in text
    assert "- CEC (" in text


@pytest.mark.usefixtures("cifar")
def test_no_published_row_is_drawn_if_none_is_asked_for(make: Any) -> None:
    output = make("cifar100", published="none")

    assert labels(output, "curves.csv", "yes") == []
    assert "published rows" not in output.text


def test_at_most_so_many_measured_rows_are_drawn(factory: Any, make: Any) -> None:
    for steps, base in ((1, 36), (2, 34), (8, 20)):
        spec = factory.spec("ldc", params=DEFAULTS | {"steps": steps})
        factory.write(spec, [(36, 0), (34, 6), (base, 10)])

    output = make("toy", most=2)

    # The defaults, although they are worst, then the best of the others.
    assert labels(output, "curves.csv", "") == ["ldc (steps=1)", "ldc (steps=8)"]
    assert labels(output, "curves-all.csv", "") == [
        "ldc (steps=1)",
        "ldc (steps=2)",
        "ldc (steps=8)",
    ]
    assert "2 of 3 measured rows" in output.text


@pytest.mark.usefixtures("cifar")
def test_an_unknown_published_name_is_refused(make: Any) -> None:
    with pytest.raises(UsageError, match="did you mean 'CEC'"):
        make("cifar100", published="CCE")


def test_published_curves_stand_alone_while_nothing_is_measured(make: Any) -> None:
    output = make("cifar100", published="CEC; OrCo")
    lines = lines_of(next(path for path in output.files if path.name == "curves.csv"))

    assert {line["published"] for line in lines} == {"yes"}
    assert {line["label"].removesuffix(" †") for line in lines} == {"CEC", "OrCo"}
    assert "Nothing is measured" in output.text
    assert output.missing == ("fscil-bench run --method ncm --protocol cifar100 --seeds 0",)
    for nothing in ({"published": "none"}, {"most_published": 0}, {"rows": "ncm"}):
        with pytest.raises(FscilError, match="no stored run fits protocol 'cifar100'"):
            make("cifar100", **nothing)
