from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.plugins.registry import Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import ReportInput, ReportOutput
from fscil_bench.reports._figures import figure_style
from fscil_bench.reports.compare import Compare
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the figures, which take most of a report's time."""
    monkeypatch.setattr("fscil_bench.reports.compare._draw", lambda *_: ())


@pytest.fixture
def make(store: Store, tmp_path: Path, registry: Registry) -> Any:
    """Return a function that makes the report of all stored runs into `out`."""

    def build(
        protocol: str | None = "toy", rows: str = "", every: bool = False, **asked: Any
    ) -> ReportOutput:
        given = ReportInput(
            Selection(protocol, **asked), store.runs()[0], tmp_path / "out", registry
        )
        return Compare(Compare.Params(rows=rows, all=every)).build(given)

    return build


@pytest.fixture
def write(factory: Any) -> Any:
    """Return a function that writes a method's runs: base images right in the last session."""

    def runs(method: str, last: Sequence[int], **changes: Any) -> None:
        for seed, base in enumerate(last):
            spec = factory.spec(method, seed, **changes)
            factory.write(spec, [(36, 0), (34, 6), (base, 10)])

    return runs


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_files_hold_what_is_shown(write: Any, make: Any, tmp_path: Path) -> None:
    write("ldc", [30, 31, 32, 33, 34, 35])
    write("ncm", [24, 26, 28, 30, 32, 34])

    output = make()

    folder = tmp_path / "out"
    names = ["compare.md", "compare.csv", "compare.tex"]
    names += ["differences.png", "differences.pdf", "differences.csv"]
    assert [file.name for file in output.files] == names
    assert sorted(folder.iterdir()) == sorted(output.files)
    assert (folder / "compare.md").read_text("utf-8") == output.text
    assert "- ldc is 5.83 points above ncm" in output.text
    assert "| ldc − ncm | 6 | +5.83 [+2.56, +9.11] | [+" in output.text
    assert "] | 0.031 | 0.031 | **holds after correction** |" in output.text
    assert "| ldc | 6 | **70.83 ± 3.27** |" in output.text
    text = (folder / "compare.tex").read_text("utf-8")
    assert text.isascii()
    assert "U+" not in text


@pytest.mark.usefixtures("undrawn")
def test_csv_has_all_figures_in_full(write: Any, make: Any, tmp_path: Path) -> None:
    write("ldc", [30, 31, 32, 33, 34, 35])
    write("ncm", [24, 26, 28, 30, 32, 34])

    make()
    lines = lines_of(tmp_path / "out" / "compare.csv")

    figures = ["last session", "average over sessions", "harmonic mean"]
    assert [line["figure"] for line in lines] == figures
    last, average, _ = lines
    assert (last["first"], last["second"], last["n"], last["equal_pairs"]) == (
        "ldc",
        "ncm",
        "6",
        "0",
    )
    assert float(last["mean"]) == pytest.approx(100 * 21 / 6 / 60)
    # Other sessions are alike: a third of the difference of the last of three.
    assert float(average["mean"]) == pytest.approx(100 * 21 / 6 / 60 / 3)
    assert float(last["p"]) == 2 / 64
    assert float(last["bootstrap_low"]) < float(last["mean"]) < float(last["bootstrap_high"])


def test_the_figure_is_what_its_csv_says(write: Any, make: Any, tmp_path: Path) -> None:
    write("ldc", [30, 31, 32, 33, 34, 35])
    write("ncm", [24, 26, 28, 30, 32, 34])

    make()
    lines = lines_of(tmp_path / "out" / "differences.csv")

    assert {line["figure"]: line["outcome"] for line in lines} == dict.fromkeys(
        ("last session", "average over sessions", "harmonic mean"), "holds after correction"
    )
    assert float(lines[0]["high"]) - float(lines[0]["mean"]) == pytest.approx(3.273, abs=1e-3)


def test_differences_that_hold_are_filled(factory: Any, write: Any, registry: Registry) -> None:
    from matplotlib.colors import to_rgba

    from fscil_bench.reports._comparison import compared_pairs, on_equal_terms
    from fscil_bench.reports._difference_figure import difference_figure
    from fscil_bench.reports._rows import group_rows

    write("a", [30, 31, 32, 33, 34, 35])
    write("b", [24, 26, 28, 30, 32, 34])
    write("c", [31, 30, 32, 33, 34, 35])
    groups = on_equal_terms(group_rows(factory.store.runs()[0], registry))
    pairs = compared_pairs(groups)
    with figure_style():
        panel = difference_figure(pairs).axes[0]

    points = [line for line in panel.lines if line.get_marker() in ("o", "D")]
    assert [line.get_xdata()[0] for line in points] == [
        pair.tests["last session"].interval.mean for pair in pairs
    ]
    white = to_rgba("white")
    assert [to_rgba(line.get_markerfacecolor()) == white for line in points] == [
        pair.outcome("last session") != "holds after correction" for pair in pairs
    ]


@pytest.mark.usefixtures("undrawn")
def test_too_many_comparisons_for_the_seeds_are_said_so(write: Any, make: Any) -> None:
    for method in "abcd":
        write(method, [30, 31, 32, 33, 34, 35 - ord(method) % 3])

    assert (
        "With 6 comparisons and at most 6 pairs each none can hold after correction: that takes "
        "8 pairs, or fewer rows"
    ) in make().text


def test_rows_are_chosen(write: Any, make: Any, tmp_path: Path) -> None:
    for steps in (1, 2, 3):
        write("ldc", [30, 31], params={"steps": steps})

    output = make(rows="ldc (steps=1); ldc (steps=3)")

    assert "steps=2" not in output.text
    assert len(lines_of(output.files[1])) == 3
    # A part of the comparison does not replace the whole one.
    assert output.files[0].parent.parent == tmp_path / "out"


@pytest.mark.usefixtures("undrawn")
def test_long_labels_get_short_names(write: Any, make: Any) -> None:
    names = {f"parameter_{i}": i for i in range(6)}
    write("ldc", [30, 31], params=names)
    write("ldc", [28, 30], params={name: value + 9 for name, value in names.items()})
    write("ncm", [20, 20])

    text = make().text

    assert "- ldc #1 is 2.50 points above ldc #2" in text
    assert "| ldc #1: ldc (parameter_0=0, parameter_1=1" in text


@pytest.mark.usefixtures("undrawn")
def test_rows_on_other_terms_stand_alone(write: Any, make: Any) -> None:
    write("a", [30, 31])
    write("b", [28, 30])
    write("a", [20, 20], split="outlier:0.2")

    text = make(every=True).text

    assert "as no other row has their terms or seeds: a (split=outlier:0.2)" in text
    assert "1 more row is stored" in make().text


@pytest.mark.usefixtures("undrawn")
def test_one_row_cannot_be_compared(write: Any, make: Any) -> None:
    write("a", [30, 31])

    with pytest.raises(FscilError, match=r"nothing can be paired; the rows are\n  a"):
        make()


@pytest.mark.usefixtures("undrawn")
def test_a_protocol_must_be_named(write: Any, make: Any) -> None:
    write("a", [30])

    with pytest.raises(UsageError, match=r"compare shows one protocol: .*stored: toy"):
        make(None)


@pytest.mark.usefixtures("undrawn")
def test_an_unknown_method_is_answered(write: Any, make: Any) -> None:
    write("ncm", [30])

    with pytest.raises(UsageError, match="unknown method 'nmc'; did you mean 'ncm'"):
        make(methods=("nmc",))


@pytest.mark.usefixtures("undrawn")
def test_one_class_order_names_the_commands_for_more(write: Any, make: Any) -> None:
    write("ldc", [30, 31])
    write("ncm", [28, 29])

    output = make()

    command = "fscil-bench run --method ncm --protocol toy --seeds 0-1 --class-order seed:1"
    assert f"- `{command} --precision fp32`" in output.text
    assert f"{command} --precision fp32" in output.missing


@pytest.mark.usefixtures("undrawn")
def test_class_orders_are_compared(write: Any, make: Any, toy_protocol: Protocol) -> None:
    write("ldc", [30, 31])
    write("ncm", [28, 29])
    other = toy_protocol.override(class_order="seed:1")
    brought = {"class_order": "seed:1", "data_fingerprint": "0"}
    write("ldc", [20, 21], protocol=other, representation=brought)
    write("ncm", [26, 27], protocol=other, representation=brought)

    output = make()

    assert "The order of the rows changes in 1 of 1 pairs of class orders; 1 of" in output.text
    assert "Kendall's tau -1.00 over 2 rows; changed places: " in output.text
    assert "| ldc | 2 | **67.50 ± 10.59** | 50.83 ± 10.59 |" in output.text
    assert not any("--class-order" in command for command in output.missing)


@pytest.mark.usefixtures("undrawn")
def test_a_damaged_run_is_left_out_and_named(factory: Any, write: Any, make: Any) -> None:
    write("a", [30, 31])
    write("b", [30, 31])
    damaged = factory.write(factory.spec("b", seed=7))
    (damaged.folder / "predictions.npz").write_bytes(b"PK")

    output = make()

    assert str(damaged.folder) in output.warnings[0]
    assert "a and b are equal in all 2 pairs" in output.text
