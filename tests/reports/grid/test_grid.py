"""The grid, on runs made by hand: 4 + 2 × 1 classes of 10 test images each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.method import Needs
from fscil_bench.params import NoParams
from fscil_bench.plugins.registry import Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.grid.report import GridReport
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store


@dataclass(frozen=True)
class SpaceParams:
    space: str = "raw"


@dataclass(frozen=True)
class StepsParams:
    steps: int = 1


def method(params: type, **needs: Any) -> type:
    return type("Method", (), {"Params": params, "needs": Needs(**needs)})


def representation(params: type, *extras: str, trained: bool = True) -> type:
    class Brought:
        Params = params

        def __init__(self, params: Any) -> None:
            self.params = params

        def is_trained(self) -> bool:
            return trained

    return type("Representation", (Brought,), {"extras": extras})


PLUGINS = {
    ("method", "ncm"): method(SpaceParams),
    ("method", "ldc"): method(StepsParams),
    ("method", "fact"): method(NoParams, extras=("virtual",)),
    ("method", "icarl"): method(NoParams, images=True),
    ("representation", "cosine"): representation(NoParams),
    ("representation", "fact"): representation(StepsParams, "virtual"),
    ("representation", "given"): representation(NoParams, trained=False),
}
FACT = {"name": "fact", "params": {"steps": 1}}
FILE = "w.pt (sha256 0123456789ab)"
RAW, TUKEY = {"space": "raw"}, {"space": "tukey"}


@pytest.fixture
def registry(toy_protocol: Protocol) -> Registry:
    registry = Registry()
    for (kind, name), value in PLUGINS.items():
        registry.add(Plugin(kind, name, value, Path(__file__), "test"))
    registry.add(Plugin("protocol", "toy", toy_protocol, Path(__file__), "test"))
    return registry


@pytest.fixture
def write(write_last: Any) -> Any:
    """Return a function that writes a run for each number of base images right at the end."""

    def runs(last: list[int], name: str = "ncm", params: Any = RAW, **changes: Any) -> None:
        write_last(name, last, params=params, **changes)

    return runs


def lines_of(made: Any, table: str) -> list[dict[str, Any]]:
    return list(made.tables[table].to_dict("records"))


def cells(line: dict[str, Any], key: str) -> tuple[float, float, int]:
    mean, half, count = (line[f"{key}_{part}"] for part in ("mean", "half_width", "n"))
    return mean, half, count


def test_the_grid_by_hand(write: Any, make: Any) -> None:
    write([20])
    write([26], representation=FACT)

    made = make(GridReport)

    # 36/40, 40/50 and 30/60 or 36/60; base 20/40 or 26/40, new 10/20.
    rows = [line for line in made.text.splitlines() if line.startswith("| ncm")]
    assert rows[:2] == [
        "| ncm [cosine] | 1 | 73.33 | 50.00 | 50.00 | 50.00 | 50.00 |",
        "| ncm [fact] | 1 | 76.67 | 60.00 | 65.00 | 50.00 | 56.52 |",
    ]
    cell = made.figures["heat-map"].numbers.to_dict("records")[1]
    assert (cell["method"], cell["representation"], cell["mean"], cell["n"]) == (
        "ncm",
        "fact",
        60.0,
        1,
    )
    assert math.isnan(cell["low"])


def test_representations_gain_by_pairs_of_seeds(write: Any, make: Any) -> None:
    write([20, 26, 32])
    write([21, 28, 35], representation=FACT)
    write([20, 26, 32], params=TUKEY)

    (line,) = lines_of(make(GridReport), "representation-gains")

    assert (line["label"], line["of"], line["over"]) == ("fact − cosine", "fact", "cosine")
    # 1, 2 and 3 images of 60 more: mean 2, s 1, t(0.975, 2) = 4.302653.
    half = 100 / 60 * 4.3026527 / math.sqrt(3)
    assert cells(line, "default_last") == pytest.approx((200 / 60, half, 3), rel=1e-7)
    assert cells(line, "default_last_base")[0] == pytest.approx(5.0)
    assert cells(line, "default_last_new") == (0.0, 0.0, 3)
    assert cells(line, "stronger_last")[2] == 0, "fact has no such row"


def test_averaged_views_are_compared_with_plain_ones(write: Any, make: Any) -> None:
    for brought, gain in (({}, 0), (FACT, 2)):
        write([20 + gain, 26 + gain], representation=brought)
        write([23 + gain, 29 + gain], representation=brought, views="flip")

    lines = lines_of(make(GridReport), "representation-gains")

    gains = {line["label"]: cells(line, "default_last") for line in lines}
    assert gains == {
        "cosine, flip − cosine": pytest.approx((5.0, 0.0, 2)),
        "fact − cosine": pytest.approx((100 / 30, 0.0, 2)),
        "fact, flip − cosine, flip": pytest.approx((100 / 30, 0.0, 2)),
        "fact, flip − fact": pytest.approx((5.0, 0.0, 2)),
    }


def test_methods_gain_on_the_same_network(write: Any, make: Any) -> None:
    write([20, 26, 32])
    write([23, 29, 35], params=TUKEY)
    write([26, 32, 38], "ldc", {"steps": 1})
    write([10, 10, 10], "fact", {}, representation=FACT)

    lines = {line["label"]: line for line in lines_of(make(GridReport), "method-gains")}

    assert list(lines) == ["ncm (space=tukey) [cosine]", "ldc [cosine]"]
    ldc, tukey = lines["ldc [cosine]"], lines["ncm (space=tukey) [cosine]"]
    assert cells(ldc, "default_last") == pytest.approx((10.0, 0.0, 3))
    assert cells(ldc, "stronger_last") == pytest.approx((5.0, 0.0, 3))
    assert cells(tukey, "default_last") == pytest.approx((5.0, 0.0, 3))
    assert cells(tukey, "stronger_last")[2] == 0, "not over itself"


def test_runs_on_another_network_are_no_pairs(write: Any, make: Any) -> None:
    write([20, 26], representation={"code": "r2"})
    write([26, 32], "ldc", {"steps": 1})

    assert "method-gains" not in make(GridReport).tables


def test_parameters_set_by_hand_are_shown_if_asked_for(write: Any, make: Any) -> None:
    write([20])
    write([21], "ldc", {"steps": 5})
    write([22], representation={"name": "fact", "params": {"steps": 7}})

    text = make(GridReport).text
    assert "| ldc" not in text
    assert "1 stored row left out, whose method has parameters set by hand" in text
    assert "1 stored row left out, whose representation has parameters set by hand" in text

    labels = [line["label"] for line in lines_of(make(GridReport, {"all": True}), "grid")]
    assert labels == ["ncm [cosine]", "ldc (steps=5) [cosine]", "ncm [fact, steps=7]"]


def test_what_a_paper_states_is_no_parameter_set_by_hand(
    write: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = {"toy": {"steps": 5}}
    monkeypatch.setattr(PLUGINS["method", "ldc"], "published", published, raising=False)
    write([21], "ldc", {"steps": 5})

    assert "| ldc [cosine] | 1 |" in make(GridReport).text


def test_other_terms_are_left_out(
    write: Any, make: Any, factory: Any, toy_protocol: Protocol
) -> None:
    write([20])
    write([30], split="outlier:0.2")
    factory.write(factory.spec("ncm", 0, toy_protocol.override(class_order="seed:1"), params=RAW))

    text = make(GridReport).text

    assert text.count("| ncm [cosine]") == 1
    assert "1 stored row left out, of split outlier:0.2." in text
    assert "1 stored row left out, of another shape or order of classes." in text
    assert "| ncm [cosine] | 1 | 78.89 | 66.67 |" in make(GridReport, split="outlier:0.2").text


def test_earlier_code_with_other_parameters_gives_way(factory: Any, make: Any) -> None:
    for created, params in (("2024-01-02", RAW), ("2024-01-01", {})):
        factory.write(factory.spec("ncm", params=params), created=created)

    made = make(GridReport)

    assert [line["params"] for line in lines_of(made, "grid")] == ['{"space": "raw"}']
    assert "1 stored row left out, made by earlier code" in made.text


def test_without_a_row_that_belongs_the_reasons_are_given(write: Any, make: Any) -> None:
    write([20], "ldc", {"steps": 5})

    with pytest.raises(FscilError, match="1 whose method has parameters set by hand"):
        make(GridReport)


def test_rows_on_other_sessions_are_shown_if_there_are_no_others(
    write: Any, make: Any, toy_protocol: Protocol
) -> None:
    write([20], protocol=toy_protocol.override(shot=1))

    text = make(GridReport).text

    assert "| ncm [cosine] | 1 |" in text
    assert "not the protocol's own sessions: shot=1" in text


def test_columns_with_other_epochs_are_told_apart(
    write: Any, make: Any, toy_protocol: Protocol
) -> None:
    write([20])
    write([21], protocol=toy_protocol.override(epochs=5))
    write([22], representation={"seed": 3})

    made = make(GridReport)

    assert {line["label"]: line["runs"] for line in lines_of(made, "grid")} == {
        "ncm [cosine, epochs=100]": 2,
        "ncm [cosine, epochs=5]": 1,
    }


def test_terms_are_said_of_whole_columns(write: Any, make: Any) -> None:
    write([20])
    write([21], "ldc", {"steps": 1})
    write([22], representation=FACT | {"precision": "bf16"})

    text = make(GridReport).text

    assert "- precision fp32: all on cosine." in text
    assert "- precision bf16: all on fact." in text
    assert "representation cosine" not in text.split("All rows")[1].splitlines()[0]


def test_texts_say_what_the_tables_of_gains_have(write: Any, make: Any) -> None:
    write([20])
    write([26], representation=FACT)
    write([26], "ldc", {"steps": 1})

    text = make(GridReport).text
    one = "In percentage points, of one pair each, so that there is no interval."
    assert (
        "- What each representation gains over cosine with the same views, under class means; "
        f"paired by seed. {one}"
    ) in text
    assert (
        "- What each method gains over class means on the same trained network; paired by network "
        f"and seed. {one}"
    ) in text
    gains = text.partition("## What representations gain")[2]
    assert not [each for each in ("two variants", "Student", "averaged views") if each in gains]

    write([21, 27], params=TUKEY)
    write([21, 30], views="flip")
    write([21, 30], "ldc", {"steps": 1})
    text = make(GridReport).text
    gains = "the 95 % Student-t interval of the paired differences (of one pair there is none)"
    assert "class means in two variants on the same trained network; paired by network and " in text
    assert text.count(gains) == 1, "of representations there is still one pair each"
    assert "same views, and what averaged views gain over plain ones, under class means;" in text


def test_missing_are_the_pairs_of_what_is_stored_or_named(write: Any, make: Any) -> None:
    write([20, 21])
    write([20], params=TUKEY)
    write([22, 23], "ldc", {"steps": 1}, representation=FACT)

    assert make(GridReport).missing == [
        "fscil-bench run --method ldc --protocol toy --seeds 0-1",
        "fscil-bench run --method ncm --protocol toy --set space=tukey --seeds 1",
        "fscil-bench run --method ncm --protocol toy --representation fact --seeds 0-1",
        "fscil-bench run --method ncm --protocol toy --representation fact --set space=tukey "
        "--seeds 0-1",
    ]
    named = make(GridReport, methods=("ldc", "icarl"), representations=("fact",)).missing
    assert named == [
        "fscil-bench run --method icarl --protocol toy --representation fact --seeds 0-1"
    ]


def test_missing_runs_are_on_the_network_that_the_stored_ones_have(write: Any, make: Any) -> None:
    write([20])
    write([20], "ldc", {"steps": 1}, representation={"name": "given", "pretraining": FILE})
    asked = {"methods": ("ncm", "ldc"), "representations": ("given",)}
    assert make(GridReport, **asked).missing == [
        "fscil-bench run --method ncm --protocol toy --representation given --weights PATH/TO/w.pt "
        "--seeds 0",
        "fscil-bench run --method ncm --protocol toy --representation given --set space=tukey "
        "--weights PATH/TO/w.pt --seeds 0",
    ]


def test_each_network_lacks_its_own_runs_and_one_that_was_taken_no_recipe(
    write: Any, make: Any, toy_protocol: Protocol
) -> None:
    short, taken = toy_protocol.override(epochs=1), {"name": "cosine", "network": "my net"}
    write([20], params=TUKEY, protocol=short)
    write([20], "ldc", {"steps": 1}, protocol=short)
    write([20], params=TUKEY, representation=taken)
    write([20], "ldc", {"steps": 1}, representation=taken | {"network": "another", "seed": 1})
    words, network = "fscil-bench run --method", "--network PATH/TO/NETWORK.safetensors --seeds 0"
    assert set(make(GridReport).missing) == {
        f"{words} ncm --protocol toy --epochs 1 --seeds 0",
        f"{words} ldc,ncm --protocol toy {network}",
        f"{words} ncm --protocol toy --representation-seed 1 {network}",
        f"{words} ncm --protocol toy --representation-seed 1 --set space=tukey {network}",
    }


def test_what_trains_nothing_is_made_without_the_others_recipe(
    write: Any, make: Any, toy_protocol: Protocol
) -> None:
    short, none = (toy_protocol.override(epochs=epochs) for epochs in (1, 0))
    write([20], params=TUKEY, protocol=short)
    write([20], protocol=short)
    write([20], "ldc", {"steps": 1}, protocol=short, representation=FACT)
    write([20], protocol=none, representation={"name": "given"})

    assert make(GridReport).missing == [
        "fscil-bench run --method ldc --protocol toy --epochs 1 --seeds 0",
        "fscil-bench run --method ncm --protocol toy --representation fact --epochs 1 --seeds 0",
        "fscil-bench run --method ncm --protocol toy --representation fact --epochs 1 --set "
        "space=tukey --seeds 0",
        "fscil-bench run --method ldc --protocol toy --representation given --seeds 0",
        "fscil-bench run --method ncm --protocol toy --representation given --set space=tukey "
        "--seeds 0",
    ]


def test_run_missing_makes_what_is_missing(write: Any, store: Store, registry: Registry) -> None:
    write([20])
    write([20], "ldc", {"steps": 1}, representation=FACT)
    results = Results(registry, Selection("toy"), tuple(store.runs()[0]))

    wanted = [each.request for each in GridReport(results).requests(GridReport.Params())]

    first = [each for each in wanted if each.seed == 0]
    assert [(each.method, each.representation, each.params) for each in first] == [
        ("ldc", "cosine", {}),
        ("ncm", "cosine", {}),
        ("ldc", "fact", {}),
        ("ncm", "fact", {}),
    ]


def test_without_any_run_it_needs_every_frozen_method_on_every_representation(
    registry: Registry,
) -> None:
    report = GridReport(Results(registry, Selection("toy", seeds=(3,))))

    wanted = [w.request for w in report.requests(GridReport.Params(views=("plain", "flip")))]

    assert [(r.method, dict(r.params)) for r in wanted if r.representation == "cosine"] == [
        ("ldc", {}),
        ("ncm", {}),
        ("ncm", TUKEY),
    ] * 2
    assert {r.method for r in wanted if r.representation == "fact"} == {"fact", "ldc", "ncm"}
    assert {r.views for r in wanted} == {"plain", "flip"}
    assert {r.seed for r in wanted} == {3}
    every = GridReport(Results(registry, Selection("toy"))).requests(GridReport.Params())
    assert {each.request.seed for each in every} == set(range(10))
    with pytest.raises(UsageError, match="--protocol"):
        GridReport(Results(registry)).requests(GridReport.Params())
