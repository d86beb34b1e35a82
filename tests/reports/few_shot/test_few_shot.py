from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from fscil_bench.episodes.store import (
    EpisodesRecord,
    EpisodesSpec,
    StoredEpisodes,
    write_episodes,
)
from fscil_bench.errors import FscilError, UsageError
from fscil_bench.method import Needs
from fscil_bench.params import NoParams, parse_params
from fscil_bench.plugins.registry import Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.reporting.document import latex
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.few_shot.report import FewShot
from fscil_bench.request import Design, Selection, Wanted
from fscil_bench.store.runs import Store


@dataclass(frozen=True)
class NcmParams:
    space: str = "raw"


def method(params: type = NoParams, episodes: bool = True, **needs: Any) -> type:
    learns = {"learns_episodes": staticmethod(lambda: episodes)}
    return type("Method", (), {"Params": params, "needs": Needs(**needs), **learns})


METHODS = {
    "ncm": method(NcmParams),
    "ldc": method(),
    "finetune": method(episodes=False),
    "cec_trained": method(images=True),
    "fact": method(extras=("virtual",)),
}


@pytest.fixture
def registry(toy_protocol: Protocol) -> Registry:
    made = Registry()
    for name, value in METHODS.items():
        made.add(Plugin("method", name, value, Path(__file__), "test"))
    made.add(Plugin("protocol", "toy", toy_protocol, Path(__file__), "test"))
    return made


@pytest.fixture
def write(factory: Any, store: Store) -> Any:
    """Return a function that stores episodes with given accuracies."""

    def make(
        method: str,
        accuracies: Any,
        shot: int = 1,
        way: int = 5,
        queries: int = 15,
        engine: str = "d1",
        created: str = "2024-01-01",
        fields: dict[str, Any] | None = None,
        **run: Any,
    ) -> StoredEpisodes:
        run.setdefault("params", {"space": "raw"} if method == "ncm" else {})
        spec = EpisodesSpec(
            run=factory.spec(method, **run),
            design=Design(way, shot, queries, len(accuracies)),
            engine=engine,
        )
        described: dict[str, Any] = {"train_images": (500, 500), "test_images": (20, 30)}
        described |= {"state_bytes": 2048, "created": created, **(fields or {})}
        record = EpisodesRecord(key=spec.key, spec=spec, **described)
        return write_episodes(store, record, np.array(accuracies, dtype=np.float64))

    return make


@pytest.fixture
def table(make: Any) -> Any:
    """Return a function that makes the report of all stored episodes."""

    def build(params: dict[str, Any] | None = None, **asked: Any) -> Any:
        return make(FewShot, params, **asked)

    return build


def table_lines(made: Any) -> list[str]:
    return [line for line in made.text.splitlines() if line.startswith("|")]


NCM = [0.40, 0.50, 0.60, 0.50]
LDC = [0.50, 0.50, 0.70, 0.50]


def test_the_table_by_hand(write: Any, table: Any) -> None:
    write("ldc", LDC)
    write("ldc", [0.8, 0.9], shot=5)
    write("ncm", NCM)
    write("ncm", [0.7, 0.7], shot=5)

    # ncm: mean 50, s = 8.16497; ldc: 55, s = 10; t(0.975, 3) = 3.18245, over 2 = √4.
    # Five shots: 80 and 90, s = 7.07107, t(0.975, 1) = 12.7062, over √2: above 100.
    assert table_lines(table()) == [
        "| Method | n | 5-way 1-shot | 5-way 5-shot |",
        "| --- | ---: | ---: | ---: |",
        "| ncm | 4 | 50.00 ± 12.99 | 70.00 ± 0.00 |",
        "| ldc | 4 | 55.00 ± 15.91 | 85.00 ± – |",
    ]
    assert "5-way 1-shot n = 4, 5-way 5-shot n = 2" in table().text


def test_differences_are_paired_by_episode(write: Any, table: Any) -> None:
    write("ncm", NCM)
    write("ldc", [*LDC, 0.0])  # a fifth episode, which ncm does not have

    made = table({"against": "ncm"})

    # Differences 10, 0, 10, 0: mean 5, s = 5.7735, half-width 9.187.
    assert table_lines(made)[0] == "| Method | n | 5-way 1-shot | 5-way 1-shot − ncm |"
    assert "| ldc | 5 | 44.00 ± 32.38 | 5.00 ± 9.19 |" in made.text
    assert "| ncm | 4 | 50.00 ± 12.99 | – |" in made.text
    assert "mean difference to ncm over the episodes that both have" in made.text
    (ldc,) = made.tables["few-shot"].query("method == 'ldc'").to_dict("records")
    half = stats.t.ppf(0.975, 3) * np.std([10, 0, 10, 0], ddof=1) / 2
    assert ldc["way5_shot1_difference_mean"] == pytest.approx(5)
    assert ldc["way5_shot1_difference_half_width"] == pytest.approx(half)
    assert ldc["way5_shot1_difference_n"] == 4
    assert r"5-way 1-shot $-$ ncm" in latex(made.document)


def test_what_draws_other_images_is_not_paired(
    write: Any, table: Any, toy_protocol: Protocol
) -> None:
    write("ncm", NCM)
    write("ldc", LDC, protocol=toy_protocol.override(base_classes=3))
    made = table({"against": "ncm"})
    row = next(line for line in table_lines(made) if line.startswith("| ldc"))
    assert row.endswith("| – |")
    assert "they differ in base_classes (4 / 3)" in made.text


def test_seeds_are_pooled_and_representation_seeds_are_not(write: Any, table: Any) -> None:
    write("ldc", [0.1, 0.2], seed=0)
    write("ldc", [0.3, 0.4], seed=1)
    write("ldc", [0.9, 0.8], representation={"seed": 1}, created="2024-01-02")

    made = table({"against": "ldc, representation seed 0"})
    first, second = made.tables["few-shot"].to_dict("records")

    assert (first["label"], second["label"]) == (
        "ldc, representation seed 0",
        "ldc, representation seed 1",
    )
    assert (first["seeds"], first["way5_shot1_n"]) == ("0 1", 4)
    assert first["way5_shot1_mean"] == pytest.approx(25)
    assert second["way5_shot1_mean"] == pytest.approx(85)
    # Over the episodes of seed 0 alone.
    assert second["way5_shot1_difference_mean"] == pytest.approx(70)


def test_the_larger_number_of_episodes_stays(write: Any, table: Any) -> None:
    write("ldc", [0.1, 0.2, 0.3], created="2024-01-01")
    write("ldc", [0.1, 0.2], created="2024-01-02")

    made = table()

    assert made.tables["few-shot"]["way5_shot1_n"].tolist() == [3]
    assert "left out" not in made.text


def test_other_numbers_of_queries_are_another_row(write: Any, table: Any) -> None:
    write("ldc", LDC)
    write("ldc", NCM, queries=5)
    assert [line.split(" | ")[0] for line in table_lines(table())[2:]] == [
        "| ldc, 5 queries",
        "| ldc, 15 queries",
    ]


def test_earlier_code_is_left_out_and_counted(write: Any, table: Any) -> None:
    write("ldc", NCM, engine="d1", created="2024-01-01")
    write("ldc", NCM, shot=5, code="m0", created="2024-01-01")
    write("ldc", LDC, engine="d2", created="2024-01-02")
    made = table()
    assert table_lines(made)[2:] == ["| ldc | 4 | 55.00 ± 15.91 |"]
    assert "ldc: 2 stored sets of episodes left out, made with an earlier version" in made.text


def test_parameters_tell_rows_apart_and_against_must_say_which(write: Any, table: Any) -> None:
    write("ncm", NCM)
    write("ncm", LDC, params={"space": "tukey"})
    write("ldc", [0.9] * 4)
    labels = [line.split(" | ")[0] for line in table_lines(table())[2:]]
    assert labels == ["| ncm (space=raw)", "| ncm (space=tukey)", "| ldc"]
    with pytest.raises(UsageError, match=r"fits several rows.*'ncm \(space=raw\)', 'ncm \(spa"):
        table({"against": "ncm"})
    made = table({"against": "ncm (space=tukey)"})
    assert "| ldc | 4 | **90.00 ± 0.00** | **35.00 ± 15.91** |" in made.text
    with pytest.raises(UsageError, match="no row is called that; did you mean 'ncm'"):
        table({"against": "nmc"})


def test_what_the_table_states(write: Any, table: Any) -> None:
    write("ldc", LDC, fields={"flags": ("unofficial data (x)",), "parameters": "chosen there"})
    text = table().text
    for words in (
        "backbone resnet20",
        "100 epochs",
        "test images a class: 20 to 30",
        "2 new classes",
        "15 queries a class",
        "episodes drawn by seed 0",
        "representation_seed 0",
        "parameters: chosen there",
        "2.00 KiB (2,048 bytes) stored",
        "flags: unofficial copy",
    ):
        assert words in text


def test_missing_episodes_come_with_their_command(write: Any, table: Any) -> None:
    # The protocol has two new classes.
    write("ncm", [0.5] * 600, way=2)
    write("ldc", LDC, way=2)  # fewer than wanted
    assert table().missing == [
        "fscil-bench episodes --method ldc --protocol toy --way 2 --shot 1 --queries 15 "
        "--episodes 600 --seeds 0",
        "fscil-bench episodes --method ldc,ncm --protocol toy --way 2 --shot 5 --queries 15 "
        "--episodes 600 --seeds 0",
    ]
    asked = table({"shots": "1", "episodes": "4"}, methods=("ldc", "ncm"), seeds=(0, 2))
    assert asked.missing == [
        "fscil-bench episodes --method ldc,ncm --protocol toy --way 2 --shot 1 --queries 15 "
        "--episodes 4 --seeds 2",
    ]


def test_no_more_queries_are_wanted_than_each_class_has_test_images(write: Any, table: Any) -> None:
    few = {"test_images": (4, 30)}
    write("ncm", [0.5] * 600, way=2, queries=4, fields=few)
    asked = {"methods": ("ncm",)}
    (command,) = table(**asked).missing
    assert "--way 2 --shot 5 --queries 4 --episodes 600" in command
    (_, command) = table({"queries": "9"}, **asked).missing
    assert "--queries 9 " in command, "what is asked for by number stays"


def test_the_episodes_it_wants(registry: Registry) -> None:
    def wanted(params: dict[str, str], **asked: Any) -> list[Wanted]:
        report = FewShot(Results(registry, Selection("toy", **asked)))
        return list(report.requests(parse_params("report", FewShot.Params, params)))

    some = wanted(
        {"shots": "1,5", "way": "3", "queries": "15"}, representations=("fact",), seeds=(4,)
    )
    assert [(w.request.method, w.episodes) for w in some] == [
        ("ldc", Design(3, 1, 15, 600)),
        ("ldc", Design(3, 5, 15, 600)),
        ("ncm", Design(3, 1, 15, 600)),
        ("ncm", Design(3, 5, 15, 600)),
    ]
    assert {(w.request.representation, w.request.seed) for w in some} == {("fact", 4)}
    named = wanted({}, methods=("cec_trained",))
    assert [w.request.method for w in named] == ["cec_trained", "cec_trained"]
    assert named[0].episodes == Design(2, 1), "the test images are not known yet"


@pytest.mark.parametrize("shots", ["", "0", "1,x"])
def test_shots_of_no_use_are_refused(shots: str) -> None:
    with pytest.raises(UsageError, match="report: shots"):
        parse_params("report", FewShot.Params, {"shots": shots})


def test_without_episodes_the_command_is_given(table: Any) -> None:
    with pytest.raises(FscilError, match="make some: fscil-bench episodes --method ncm "):
        table()
    with pytest.raises(UsageError, match="name it with --protocol"):
        table(protocol=None)
    with pytest.raises(UsageError, match="unknown protocol 'tyo'; did you mean 'toy'"):
        table(protocol="tyo")


def test_damaged_episodes_are_left_out_and_named(write: Any, table: Any) -> None:
    write("ncm", NCM)
    damaged = write("ldc", LDC)
    (damaged.folder / "accuracies.npy").write_bytes(b"")
    made = table()
    assert len(table_lines(made)) == 3
    assert len(made.document.warnings) == 1
    assert str(damaged.folder) in made.document.warnings[0]
    with pytest.raises(FscilError, match=r"left out: .*accuracies.npy: damaged"):
        table(methods=("ldc",))


def test_a_protocol_of_a_file_that_is_not_given_is_known_by_its_episodes(
    write: Any, table: Any, toy_protocol: Protocol
) -> None:
    write("ncm", NCM, protocol=toy_protocol.override(name="scanned"))

    assert "| ncm | 4 |" in table(protocol="scanned", seeds=(0,)).text
    with pytest.raises(FscilError, match="no stored episodes fit protocol 'scanned'") as caught:
        table(protocol="scanned", seeds=(1, 2), methods=("ncm",))
    assert str(caught.value).endswith(
        "fscil-bench episodes --method ncm --protocol PATH/TO/scanned.toml --seeds 1-2"
    )
    with pytest.raises(UsageError, match="unknown protocol 'scaned'"):
        table(protocol="scaned", seeds=(1,))
