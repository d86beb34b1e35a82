from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.errors import FscilError, StoreError, UsageError
from fscil_bench.plugins.registry import Plugin, Registry, load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import ReportOutput
from fscil_bench.reporting.document import files_folder, write_document
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.main_table import MainTable
from fscil_bench.reports.published import published_rows
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store

DEFAULTS = MainTable.Params()


@pytest.fixture
def make(store: Store, tmp_path: Path, registry: Registry) -> Any:
    """Return a function that makes the report of all stored runs into `out`."""

    def build(
        protocol: str | None = "toy", params: MainTable.Params = DEFAULTS, **asked: Any
    ) -> ReportOutput:
        selection = Selection(protocol=protocol, **asked)
        results = Results(registry, selection, tuple(store.runs()[0]))
        document = MainTable(results).build(results.frame, params)
        folder = files_folder(tmp_path / "out", selection, params)
        return write_document(document, folder, MainTable.name)

    return build


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table_lines(output: ReportOutput) -> list[str]:
    return [line for line in output.text.splitlines() if line.startswith("|")]


def labels(output: ReportOutput) -> list[str]:
    return [line.split(" | ")[0].removeprefix("| ") for line in table_lines(output)[2:]]


def test_the_table_by_hand(factory: Any, make: Any) -> None:
    factory.write(factory.spec("ldc"), [(36, 0), (34, 6), (30, 15)])
    factory.write(factory.spec("ncm"), [(38, 0), (34, 1), (30, 0)])

    # ldc: 36/40, 40/50, 45/60; PD 15, PR 75/90; base 30/40, new 15/20, their mean 75.
    # ncm: 38/40, 35/50, 30/60; PD 45, PR 50/95; base 30/40, new 0.
    assert table_lines(make()) == [
        "| Method | n | 0 | 1 | 2 | Avg | PD | PR | Base | New | HM |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| ncm | 1 | 95.00 | 70.00 | 50.00 | 71.67 | 45.00 | 52.63 | 75.00 | 0.00 | 0.00 |",
        "| ldc | 1 | 90.00 | 80.00 | 75.00 | 81.67 | 15.00 | 83.33 | 75.00 | 75.00 | 75.00 |",
    ]


def test_further_measures_stand_where_they_belong(factory: Any, make: Any) -> None:
    factory.write(factory.spec(), [(36, 0), (38, 2), (30, 15)], peak_memory=3_500_000)

    made = make(params=MainTable.Params(measures="memory, gacc_area,last_harmonic_classes"))

    assert "| HM | HM by class | gAcc area | Memory (MB) |" in made.text
    assert "| 75.00 | 75.00 | 72.40 | 3.50 |" in made.text
    assert "gAcc area is that under gAcc(α)" in made.text
    with pytest.raises(UsageError, match="unknown measure 'gac_area'; did you mean 'gacc_area'"):
        make(params=MainTable.Params(measures="gac_area"))


def test_seeds_become_an_interval_that_says_what_varied(factory: Any, make: Any) -> None:
    for seed, base in enumerate((26, 30, 34)):
        factory.write(factory.spec(seed=seed), [(36, 0), (34, 6), (base, 10)])

    output = make()

    # 36/60, 40/60 and 44/60: s = 1/15, t(0.975, 2) = 4.302653, half-width 16.56 points.
    assert "| ncm | 3 | 90.00 ± 0.00 | 80.00 ± 0.00 | 66.67 ± 16.56 |" in output.text
    assert "n = 3 over seed (shots and method noise), representation_seed 0" in output.text
    assert output.missing == ()


def test_csv_has_full_precision(factory: Any, make: Any, tmp_path: Path) -> None:
    factory.write(factory.spec("ncm", params={"a": 1}))
    for seed in range(2):
        factory.write(factory.spec("ldc", seed=seed), [(36, 0), (34, 6), (30 + seed, 10)])

    make()
    ncm, ldc = lines_of(tmp_path / "out" / "main-table.csv")

    assert (ncm["label"], ncm["params"], ncm["seeds"]) == ("ncm", '{"a": 1}', "0")
    assert float(ncm["session_2_mean"]) == 100 * (40 / 60)
    assert (ncm["session_2_half_width"], ncm["session_2_n"]) == ("", "1")
    assert (ldc["seeds"], ldc["runs"], ldc["session_2_n"]) == ("0 1", "2", "2")
    assert float(ldc["session_2_mean"]) == pytest.approx(100 * 40.5 / 60, rel=1e-15)
    assert float(ldc["session_2_half_width"]) == pytest.approx(12.7062047 / 1.2, rel=1e-8)
    assert float(ncm["performance_retention_mean"]) == pytest.approx(100 * 40 / 54, rel=1e-15)


def test_curve_csv_is_what_is_drawn(factory: Any, make: Any, tmp_path: Path) -> None:
    factory.write(factory.spec("ncm"), [(36, 0), (34, 6), (20, 10)])
    for seed in range(2):
        factory.write(factory.spec("ldc", seed=seed), [(36, 0), (34, 6), (30 + 6 * seed, 10)])

    make()
    lines = lines_of(tmp_path / "out" / "curve.csv")

    assert list(lines[0]) == ["label", "session", "classes_seen", "mean", "low", "high", "n"]
    assert [(line["label"], line["classes_seen"]) for line in lines] == [
        (label, seen) for label in ("ldc", "ncm") for seen in ("4", "5", "6")
    ]
    mean, low, high = (float(lines[2][name]) for name in ("mean", "low", "high"))
    assert mean == pytest.approx(100 * 43 / 60)
    assert high - mean == pytest.approx(12.7062047 * 5, rel=1e-8)
    assert mean - low == pytest.approx(high - mean)
    assert (lines[5]["low"], lines[5]["high"], lines[5]["n"]) == ("", "", "1")


def test_rows_with_different_sessions_stand_side_by_side(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    factory.write(factory.spec("ncm"))
    short = toy_protocol.override(sessions=1)
    factory.write(factory.spec("ldc", protocol=short), [(36, 0), (34, 6)])

    output = make(params=MainTable.Params(all=True))

    assert "| ldc (sessions=1) | 1 | 90.00 | 80.00 | – |" in output.text
    assert "they differ in sessions (2 / 1)" in output.text


def test_rows_of_other_shots_or_sessions_wait_until_they_are_asked_for(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    short = toy_protocol.override(sessions=1)
    factory.write(factory.spec("ldc", protocol=short), [(36, 0), (34, 6)])
    assert labels(make()) == ["ldc"]
    assert "No stored row is on the protocol's own shots" in make().text
    factory.write(factory.spec("ncm", split="outlier:0.5"))
    factory.write(factory.spec("ncm"))

    assert labels(make()) == labels(make(split="outlier:0.5")) == ["ncm"]
    named = make(params=MainTable.Params(rows="ldc; ncm (split=outlier:0.5)"))
    assert labels(named) == ["ncm (sessions=2)", "ldc (sessions=1)"]
    assert "2 more rows are stored, with parameters set by hand or on other terms" in make().text
    assert len(labels(make(params=MainTable.Params(all=True)))) == 3


def test_usual_rows_have_nothing_set_by_hand(factory: Any, make: Any) -> None:
    for params in ({}, {"steps": 3}):
        factory.write(factory.spec("ldc", params={"steps": 8, "widths": [64, 32]} | params))

    assert set(labels(make())) == {"ldc (steps=8)", "ldc (steps=3)"}
    assert labels(make(params=MainTable.Params(usual=True))) == ["ldc"]


def test_methods_have_titles_and_are_cited(factory: Any, make: Any, registry: Registry) -> None:
    registry.plugins["method"]["free_lunch"] = load_registry().get("method", "free_lunch")
    for method in ("ncm", "free_lunch"):
        factory.write(factory.spec(method))

    output = make(params=MainTable.Params(rows="free_lunch"))

    assert labels(output) == ["Free-Lunch"]
    assert labels(make(params=MainTable.Params(rows="Free-Lunch; ncm"))) == ["ncm", "Free-Lunch"]
    assert "- In commands Free-Lunch is free_lunch." in output.text
    folder = output.files[0].parent
    assert r"Free-Lunch~\cite{yang2021freelunch} & 1" in (folder / "main-table.tex").read_text()
    assert (folder / "references.bib").read_text().startswith("@inproceedings{yang2021freelunch,")


def test_a_protocol_of_one_session_has_no_new_classes(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    factory.write(factory.spec(protocol=toy_protocol.override(sessions=0)), [(36, 0)])

    assert "| ncm | 1 | 90.00 | 90.00 | 0.00 | 100.00 | 90.00 | – | – |" in make().text


def test_only_damaged_runs_make_no_table(factory: Any, make: Any) -> None:
    (factory.write(factory.spec()).folder / "predictions.npz").unlink()

    with pytest.raises(StoreError, match="run it again"):
        make()


def test_a_protocol_must_be_named(factory: Any, make: Any, toy_protocol: Protocol) -> None:
    for name in ("toy", "other"):
        factory.write(factory.spec(protocol=toy_protocol.override(name=name)))

    with pytest.raises(UsageError, match=r"--protocol; stored: other, toy"):
        make(None)


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        ({}, "fscil-bench run --method ncm --protocol absent --seeds 0"),
        (
            {"methods": ("ncm",), "seeds": (3,), "representations": ("fact",)},
            "fscil-bench run --method ncm --protocol absent --representation fact --seeds 3",
        ),
    ],
)
def test_without_runs_the_command_that_makes_one_is_given(
    factory: Any,
    make: Any,
    registry: Registry,
    toy_protocol: Protocol,
    asked: dict[str, Any],
    command: str,
) -> None:
    factory.write(factory.spec())
    absent = toy_protocol.override(name="absent")
    registry.add(Plugin("protocol", "absent", absent, Path(__file__), "test"))

    with pytest.raises(FscilError, match=r"protocols with runs: toy") as caught:
        make("absent", **asked)

    assert str(caught.value).endswith(command)


@pytest.mark.parametrize(
    ("protocol", "asked", "expected"),
    [
        ("tpy", {}, "unknown protocol 'tpy'; did you mean 'toy'"),
        ("toy", {"methods": ("nmc",)}, "unknown method 'nmc'; did you mean 'ncm'"),
    ],
)
def test_a_name_that_nothing_has_is_a_mistake_of_usage(
    factory: Any, make: Any, protocol: str, asked: dict[str, Any], expected: str
) -> None:
    factory.write(factory.spec())
    with pytest.raises(UsageError, match=expected):
        make(protocol, **asked)


def test_published_rows_stand_in_a_block_of_their_own(
    factory: Any, make: Any, registry: Registry, tmp_path: Path
) -> None:
    cub = load_registry().get("protocol", "cub200")
    registry.add(cub)
    sessions = [(900 - 10 * t, 60 * t) for t in range(11)]
    factory.write(factory.spec("ncm", protocol=cub.value), sessions)

    output = make("cub200", MainTable.Params(published="LDC; NCM (LUCIR/Rebalancing)"))

    measured, published = output.text.split("## Published")
    assert "| ncm | 1 | 90.00 |" in measured
    assert "LDC" not in measured.split("Each is computed")[0]
    assert "| LDC | 77.89 | 76.93 |" in published
    assert "| 61.58 | 68.32 | 16.31 | 79.06 | c |" in published
    assert "not class means on frozen features" in published
    assert "| ncm |" not in published
    folder = tmp_path / "out" / "published=LDC--NCM--LUCIR-Rebalancing-"
    (csv_file,) = folder.parent.glob(f"{folder.name}*/main-table-published.csv")
    assert [line["published_name"] for line in lines_of(csv_file)] == [
        "NCM (LUCIR/Rebalancing)",
        "LDC",
    ]
    assert [line["label"] for line in lines_of(csv_file.with_name("main-table.csv"))] == ["ncm"]
    tex = csv_file.with_name("main-table-published.tex").read_text("utf-8")
    assert tex.isascii()
    assert "LDC & 77.89" in tex


def test_published_rows_are_those_of_measured_methods_unless_all_are_asked_for(
    factory: Any, make: Any, registry: Registry
) -> None:
    known = load_registry()
    cub = known.get("protocol", "cub200")
    registry.add(cub)
    registry.plugins["method"] = {n: known.get("method", n) for n in ("ldc", "ncm", "cec")}
    sessions = [(900 - 10 * t, 60 * t) for t in range(11)]
    for method in ("ldc", "ncm", "cec"):
        factory.write(factory.spec(method, protocol=cub.value), sessions)

    def named(output: ReportOutput) -> set[str]:
        lines = output.text.split("## Published")[-1].splitlines()
        return {line.split(" | ")[0][2:] for line in lines if line.startswith("| ")}

    output = make("cub200")
    # `ncm` answers the decoupled cosine; ALICE needs another network, and CEC has its name.
    assert named(output) == {"Published", "---", "LDC", "Decoupled-Cosine", "CEC"}
    every = len(published_rows(cub.value))
    told = f"Papers print {every} rows for this protocol, 3 of them of methods in the table above"
    assert f"{told}; --set published=all shows all." in output.text
    whole = make("cub200", MainTable.Params(published="all"))
    assert len(named(whole)) == every + 2 and "shows all" not in whole.text
    none = make("cub200", MainTable.Params(published="none"))
    assert "## Published" not in none.text and "shows all" not in none.text


def test_published_rows_stand_alone_while_nothing_is_measured(
    make: Any, registry: Registry, tmp_path: Path
) -> None:
    registry.add(load_registry().get("protocol", "cub200"))

    output = make("cub200")

    assert "Nothing is measured: no run of this protocol is stored" in output.text
    assert "| LDC" in output.text
    assert [path.name for path in output.files] == [
        "main-table.md",
        "main-table-published.csv",
        "main-table.tex",
        "main-table-published.tex",
    ]
    assert len(lines_of(tmp_path / "out" / "main-table-published.csv")) > 20
    assert output.missing == ("fscil-bench run --method ncm --protocol cub200 --seeds 0",)
    for asked in ({"methods": ("ncm",)}, {"params": MainTable.Params(published="none")}):
        with pytest.raises(FscilError, match="no stored run fits protocol 'cub200'"):
            make("cub200", **asked)


def test_a_part_of_the_table_leaves_the_whole_one_as_it_is(factory: Any, make: Any) -> None:
    for method in ("ncm", "ldc"):
        factory.write(factory.spec(method))
    whole = {path: path.read_bytes() for path in make().files}

    parts = [make(methods=("ncm",)), make(params=MainTable.Params(rows="ldc"))]

    assert all(path.read_bytes() == content for path, content in whole.items())
    assert [output.files[0].parent.name for output in parts] == ["method=ncm", "rows=ldc"]
    assert [line["label"] for line in lines_of(parts[1].files[1])] == ["ldc"]
