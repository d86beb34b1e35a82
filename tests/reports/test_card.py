from __future__ import annotations

import csv
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import ReportInput, ReportOutput
from fscil_bench.reports._card_facts import parameter_count
from fscil_bench.reports.card import MOST, Card
from fscil_bench.request import Selection
from fscil_bench.store.runs import SessionRecord, Store

ENVIRONMENT = {"processor": "A & B 50%", "device": "cpu", "packages": {"torch": "2.9"}}


@dataclass(frozen=True)
class ShownParams:
    steps: int = 8


class Shown:
    """Shown: a method.

    Someone, "A `title` of 100 % & more", 2024: the idea
    in a paragraph.

    What else there is to say.
    """

    Params = ShownParams


@pytest.fixture
def make(store: Store, tmp_path: Path, registry: Registry) -> Any:
    """Return a function that makes the cards of all stored runs into `out`."""
    registry.add(Plugin("method", "shown", Shown, Path(__file__), "test"))

    def build(rows: str = "", **asked: Any) -> ReportOutput:
        runs, _ = store.runs()
        selection = Selection(**{"protocol": "toy", **asked})
        given = ReportInput(selection, runs, tmp_path / "out", registry)
        return Card(Card.Params(rows)).build(given)

    return build


def facts_of(output: ReportOutput) -> dict[tuple[str, str], list[str]]:
    """Return value, half-width and n by heading and name, from the CSV of the only card."""
    (path,) = (p for p in output.files if p.suffix == ".csv" and "curve" not in p.name)
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return {(e["heading"], e["name"]): [e["value"], e["half_width"], e["n"]] for e in lines}


def test_numbers_by_hand(factory: Any, make: Any) -> None:
    for seed, base in enumerate((26, 30, 34)):
        factory.write(factory.spec("shown", seed=seed), [(36, 0), (34, 6), (base, 10)])

    output = make()

    # 36, 40 and 44 of 60: s = 1/15, t(0.975, 2) = 4.302653, half-width 16.56 points.
    # Base 65, 75, 85 %, s = 10; HM of these with 50 %: 56.52, 60, 62.96.
    assert "| Accuracy | 90.00 ± 0.00 | 80.00 ± 0.00 | 66.67 ± 16.56 |" in output.text
    assert "| Base | 90.00 ± 0.00 | 85.00 ± 0.00 | 75.00 ± 24.84 |" in output.text
    assert "| New | – | 60.00 ± 0.00 | 50.00 ± 0.00 |" in output.text
    assert "| Classes seen | 4 | 5 | 6 |" in output.text
    facts = facts_of(output)
    value, half_width, count = facts["Session 2", "HM"]
    harmonic = [2 * base * 50 / (base + 50) for base in (65, 75, 85)]
    assert float(value) == pytest.approx(sum(harmonic) / 3)
    assert (float(half_width) > 0, count) == (True, "3")
    assert facts["Session 0", "New"] == ["", "", "3"]
    drops = facts["All sessions", "PD"]
    assert float(drops[0]) == pytest.approx(90 - 200 / 3)
    assert float(drops[1]) == pytest.approx(4.302653 * (100 / 15) / 3**0.5, rel=1e-6)
    # Best earlier base accuracy 90 %, last 65, 75 and 85 %.
    assert float(facts["All sessions", "Base forgetting"][0]) == pytest.approx(15)


def test_all_that_a_reviewer_asks_is_there(factory: Any, make: Any) -> None:
    sessions = tuple(
        SessionRecord(
            index=t, classes_seen=4 + t, learn_seconds=t + 1.5, score_seconds=0.25, state_bytes=b
        )
        for t, b in enumerate((1024, 2048, 4096))
    )
    for seed in (0, 2):
        factory.write(
            factory.spec("shown", seed=seed, params={"steps": 3}, shots="5" * 16),
            sessions=sessions,
            pretrain_seconds=250.4,
            peak_memory=2**30,
            flags=("knows the final class count",),
            notes={"repairs": 2},
            parameters="set by hand",
            representation_log={"seconds": 1000.4 + seed, "best_epoch": None},
            environment=ENVIRONMENT,
            train_images=(200, 200),
        )
    said = {key: value[0] for key, value in facts_of(make()).items()}
    expected = {
        ("Method", "parameters"): "steps=3",
        ("Method", "came about as"): "set by hand",
        ("Data", "classes"): "4 base + 2 sessions × 1 new, 5 shots each; class order dataset",
        ("Data", "images"): "training images a class: 200 of 500 in the full data set; "
        "test images a class: 10",
        ("Representation", "epochs"): "100",
        ("Representation", "selection rule"): "last epoch",
        ("Representation", "pre-training"): "none",
        ("Representation", "precision"): "fp32",
        ("Chance", "split"): "seeded",
        ("Chance", "seeds"): "0 2",
        ("Chance", "representation seeds"): "0",
        ("Cost", "stored after the base session"): "1.00 KiB (1,024 bytes)",
        ("Cost", "stored after the last session"): "4.00 KiB (4,096 bytes)",
        ("Cost", "peak memory of the process"): "1.00 GiB (1,073,741,824 bytes)",
        ("Cost", "base training"): "1000 to 1002 s",
        ("Cost", "learning from base data alone"): "250 s",
        ("Cost", "base session"): "1.5 s",
        ("Cost", "all later sessions"): "6 s",
        ("Cost", "scoring, all sessions"): "0.75 s",
        ("Made with", "packages"): "torch 2.9",
        ("Identity", "data fingerprint"): "f" * 16,
        ("Identity", "table of shots"): "5" * 16,
        ("Identity", "engine"): "e1",
        ("Remarks", "flags"): "knows the final class count",
        ("Remarks", "notes"): "repairs = 2 (2 of 2 runs)",
        ("Made by", "command"): "fscil-bench run --method shown --protocol toy --seeds 0,2 "
        "--precision fp32 --set steps=3",
    }
    assert {key: said.get(key) for key in expected} == expected
    assert said["Representation", "backbone"] == "ResNet-20, 271,824 parameters"
    assert said["Identity", "method's code"] == "m1 (another version is installed now)"
    assert said["Identity", "representation's code"] == "r1 (not installed here)"
    keys = [factory.spec("shown", s, params={"steps": 3}, shots="5" * 16).key for s in (0, 2)]
    assert said["Identity", "runs"].split() == keys


def test_the_checkpoint_chosen_is_said(factory: Any, make: Any, toy_protocol: Protocol) -> None:
    recipe = toy_protocol.recipe.model_copy(update={"checkpoint": "best", "holdout": 0.1})
    protocol = toy_protocol.model_copy(update={"recipe": recipe})
    factory.write(factory.spec(protocol=protocol), representation_log={"best_epoch": 7})

    said = facts_of(make())

    assert said["Representation", "selection rule"][0] == (
        "best epoch on 10% of base training images, held out (epoch 7)"
    )


def test_parameters_of_the_backbone_by_hand() -> None:
    # 3·16 + 6·16² + (16·32 + 5·32²) + (32·64 + 5·64²), each times 3²; two numbers a channel of the
    # norms: 7 of 16, 6 of 32 and of 64, and those of the shortcuts if they have any.
    convolutions = 9 * (3 * 16 + 6 * 16**2 + 16 * 32 + 5 * 32**2 + 32 * 64 + 5 * 64**2)
    norms = 2 * (7 * 16 + 6 * 32 + 6 * 64)
    assert parameter_count("resnet20") - convolutions - norms in (0, 16 * 32 + 32 * 64 + 192)


def test_the_first_paragraphs_of_the_docstring_are_shown(factory: Any, make: Any) -> None:
    factory.write(factory.spec("shown"))
    factory.write(factory.spec("absent"))

    text = make().text

    assert 'Shown: a method.\n\nSomeone, "A title of 100 % & more", 2024: the idea in a' in text
    assert "What else" not in text
    assert "No method of this name is installed; --plugin gives the file of absent." in text


def test_each_row_has_a_card_with_its_files(factory: Any, make: Any, tmp_path: Path) -> None:
    specs = [factory.spec("shown", params={"steps": steps}) for steps in (1, 2)]
    for spec in specs:
        factory.write(spec)

    output = make()

    kinds = (".md", ".tex", ".csv", "-curve.png", "-curve.pdf", "-curve.csv")
    names = {f"shown-{spec.row[:8]}{kind}" for spec in specs for kind in kinds}
    assert {path.name for path in output.files} == names
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    cards = [p.read_text("utf-8") for p in output.files if p.suffix == ".md"]
    assert output.text == "\n".join(cards)
    assert {card.splitlines()[0] for card in cards} == {
        f"# shown (steps={steps}) on Toy (toy)" for steps in (1, 2)
    }
    for card, stem in zip(cards, (p.stem for p in output.files if p.suffix == ".md"), strict=True):
        assert f"]({stem}-curve.png)" in card


def test_a_row_is_chosen_and_too_many_are_refused(factory: Any, make: Any) -> None:
    for steps in (*range(8), *range(9, MOST + 2)):
        factory.write(factory.spec("shown", params={"steps": steps}))

    with pytest.raises(UsageError, match=rf"{MOST + 1} rows fit.*--set rows=") as caught:
        make()
    assert "\n  shown (steps=4)" in str(caught.value)
    assert "\n" not in make("shown (steps=4)").text.partition("# shown (steps=4) on Toy")[0]
    assert facts_of(make("shown (steps=4)"))["Method", "parameters"][0] == "steps=4"
    factory.write(factory.spec("shown", params={"steps": 8}))
    text = make().text
    assert text.startswith("# shown on Toy"), "nothing set by hand: it is what is meant"
    assert f"\n{MOST + 1} more rows are stored" in text


def test_one_command_for_each_representation_seed(factory: Any, make: Any) -> None:
    for seed, first in ((0, 0), (1, 0), (3, 0), (0, 1)):
        factory.write(factory.spec(seed=seed, representation={"seed": first}))

    text = make().text

    assert "--seeds 0-1,3 --precision" in text
    assert "--seeds 0 --representation-seed 1 --precision" in text
    assert "although some runs share one" in text


def test_seeds_that_were_asked_for_and_are_not_there_are_missing(factory: Any, make: Any) -> None:
    factory.write(factory.spec(seed=0))

    assert make().missing == ()
    assert make(seeds=(0, 5)).missing == (
        "fscil-bench run --method ncm --protocol toy --seeds 5 --precision fp32",
    )


def test_the_curve_is_what_the_tables_say(factory: Any, make: Any) -> None:
    factory.write(factory.spec(), [(36, 0), (34, 6), (30, 10)])

    (path,) = (p for p in make().files if p.name.endswith("-curve.csv"))
    with path.open(newline="") as file:
        points = [(e["label"], e["classes_seen"], e["mean"]) for e in csv.DictReader(file)]

    last = str(100 * (40 / 60))
    assert points[:3] == [
        ("all classes", *each) for each in (("4", "90.0"), ("5", "80.0"), ("6", last))
    ]
    new = (("4", ""), ("5", "60.0"), ("6", "50.0"))
    assert points[6:] == [("new classes", *each) for each in new]


def test_latex_is_ascii_and_escapes_what_users_name(
    factory: Any, make: Any, toy_protocol: Protocol
) -> None:
    protocol = toy_protocol.override(title="100 % {of} a_b")
    factory.write(factory.spec("shown", protocol=protocol), environment=ENVIRONMENT)

    (path,) = (p for p in make().files if p.suffix == ".tex")
    text = path.read_text("utf-8")

    assert text.isascii()
    assert r"shown on 100 \% \{of\} a\_b (toy)" in text
    assert r"A \& B 50\%" in text
    assert rf"\includegraphics[width=\linewidth]{{{path.stem}-curve}}" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_card_is_one_page(factory: Any, make: Any) -> None:
    many = {f"parameter_{number}": number for number in range(30)}
    for seed in range(10):
        factory.write(
            factory.spec("shown", seed=seed, params=many), environment=ENVIRONMENT, notes={"a": 1}
        )
    (path,) = (p for p in make().files if p.suffix == ".tex")
    document = (
        r"\documentclass{article}\usepackage{booktabs,graphicx}"
        r"\usepackage[margin=2cm]{geometry}\pagestyle{empty}"
        rf"\begin{{document}}\noindent\input{{{path.name}}}\end{{document}}"
    )
    (path.parent / "page.tex").write_text(document)
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(words, cwd=path.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "(1 page," in done.stdout
    assert "Overfull" not in done.stdout


def test_a_damaged_run_is_left_out_and_named(factory: Any, make: Any) -> None:
    factory.write(factory.spec(seed=0))
    damaged = factory.write(factory.spec(seed=1))
    (damaged.folder / "predictions.npz").write_bytes(b"PK")

    output = make()

    assert facts_of(output)["Chance", "seeds"][0] == "0"
    assert str(damaged.folder) in output.warnings[0]
