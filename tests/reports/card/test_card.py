from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.errors import UsageError
from fscil_bench.plugins.registry import Plugin, Registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import Section
from fscil_bench.reporting.document import latex
from fscil_bench.reports.card.report import MOST, Card
from fscil_bench.store.runs import SessionRecord

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
def card(make: Any, registry: Registry) -> Callable[..., Any]:
    """Return a function that makes the cards of all stored runs."""
    registry.add(Plugin("method", "shown", Shown, Path(__file__), "test"))

    def build(rows: str = "", **asked: Any) -> Any:
        return make(Card, {"rows": rows}, **asked)

    return build


def facts_of(made: Any) -> dict[tuple[str, str], list[Any]]:
    """Return value, half-width and n by heading and name, from the only card's table of all."""
    (lines,) = (t.to_dict("records") for t in made.tables.values() if "heading" in t)
    return {(e["heading"], e["name"]): [e["value"], e["half_width"], e["n"]] for e in lines}


def test_numbers_by_hand(factory: Any, card: Any) -> None:
    for seed, base in enumerate((26, 30, 34)):
        factory.write(factory.spec("shown", seed=seed), [(36, 0), (34, 6), (base, 10)])

    made = card()

    # 36, 40 and 44 of 60: s = 1/15, t(0.975, 2) = 4.302653, half-width 16.56 points.
    # Base 65, 75, 85 %, s = 10; HM of these with 50 %: 56.52, 60, 62.96.
    assert "| 0 | 4 | 90.00 ± 0.00 | 90.00 ± 0.00 | – | – |" in made.text
    assert "| 1 | 5 | 80.00 ± 0.00 | 85.00 ± 0.00 | 60.00 ± 0.00 |" in made.text
    assert "| 2 | 6 | 66.67 ± 16.56 | 75.00 ± 24.84 | 50.00 ± 0.00 |" in made.text
    facts = facts_of(made)
    value, half_width, count = facts["Session 2", "HM"]
    harmonic = [2 * base * 50 / (base + 50) for base in (65, 75, 85)]
    assert value == pytest.approx(sum(harmonic) / 3)
    assert (half_width > 0, count) == (True, 3)
    assert facts["Session 2", "Classes seen"][0] == 6
    assert math.isnan(facts["Session 0", "New"][0])
    drops = facts["All sessions", "PD"]
    assert drops[0] == pytest.approx(90 - 200 / 3)
    assert drops[1] == pytest.approx(4.302653 * (100 / 15) / 3**0.5, rel=1e-6)
    # Best earlier base accuracy 90 %, last 65, 75 and 85 %.
    assert facts["All sessions", "Forgetting"][0] == pytest.approx(15)


def test_all_that_a_reviewer_asks_is_there(factory: Any, card: Any) -> None:
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
    said = {key: value[0] for key, value in facts_of(card()).items()}
    expected = {
        ("Method", "parameters"): "steps=3",
        ("Method", "came about as"): "set by hand",
        ("Data", "classes"): "4 base + 2 sessions × 1 new, 5 shots each; class order dataset",
        ("Data", "images"): "training images a class: 200 of 500 in the full data set; "
        "test images a class: 10",
        ("Chance", "seeds"): "0 2",
        ("Cost", "stored after the last session"): "4.00 KiB (4,096 bytes)",
        ("Cost", "peak memory of the process"): "1.00 GiB (1,073,741,824 bytes)",
        ("Cost", "base training"): "1000 to 1002 s",
        ("Cost", "all later sessions"): "6 s",
        ("Cost", "scoring, all sessions"): "0.75 s",
        ("Made with", "packages"): "torch 2.9",
        ("Identity", "table of shots"): "5" * 16,
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


def test_the_checkpoint_chosen_is_said(factory: Any, card: Any, toy_protocol: Protocol) -> None:
    recipe = toy_protocol.recipe.model_copy(update={"checkpoint": "best", "holdout": 0.1})
    protocol = toy_protocol.model_copy(update={"recipe": recipe})
    factory.write(factory.spec(protocol=protocol), representation_log={"best_epoch": 7})

    said = facts_of(card())

    assert said["Representation", "selection rule"][0] == (
        "best epoch on 10% of base training images, held out (epoch 7)"
    )


def test_the_first_paragraphs_of_the_docstring_are_shown(factory: Any, card: Any) -> None:
    factory.write(factory.spec("shown"))
    factory.write(factory.spec("absent"))

    text = card().text

    assert 'Shown: a method.\n\nSomeone, "A title of 100 % & more", 2024: the idea in a' in text
    assert "What else" not in text
    assert "No method of this name is installed; --plugin gives the file of absent." in text


def test_each_row_has_a_card_with_its_files(factory: Any, card: Any) -> None:
    specs = [factory.spec("shown", params={"steps": steps}) for steps in (1, 2)]
    for spec in specs:
        factory.write(spec)

    made = card()
    files = {path.name for path in made.write().files}

    kinds = ("-sessions.csv", "-summary.csv", ".csv", "-curve.png", "-curve.pdf", "-curve.csv")
    assert {f"shown-{spec.row[:8]}{kind}" for spec in specs for kind in kinds} < files
    titles = [part.title for part in made.document.parts if isinstance(part, Section)]
    assert sorted(titles) == [f"shown (steps={steps}) on Toy (toy)" for steps in (1, 2)]


def test_a_row_is_chosen_and_too_many_are_refused(factory: Any, card: Any) -> None:
    for steps in (*range(8), *range(9, MOST + 2)):
        factory.write(factory.spec("shown", params={"steps": steps}))

    with pytest.raises(UsageError, match=rf"{MOST + 1} rows fit.*--set rows=") as caught:
        card()
    assert "\n  shown (steps=4)" in str(caught.value)
    assert "\n" not in card("shown (steps=4)").text.partition("# shown (steps=4) on Toy")[0]
    assert facts_of(card("shown (steps=4)"))["Method", "parameters"][0] == "steps=4"
    factory.write(factory.spec("shown", params={"steps": 8}))
    text = card().text
    assert text.startswith("# shown on Toy"), "nothing set by hand: it is what is meant"
    assert f"\n- {MOST + 1} more rows are stored" in text


def test_one_command_for_each_representation_seed(factory: Any, card: Any) -> None:
    for seed, first in ((0, 0), (1, 0), (3, 0), (0, 1)):
        factory.write(factory.spec(seed=seed, representation={"seed": first}))

    text = card().text

    assert "--seeds 0-1,3 --precision" in text
    assert "--seeds 0 --representation-seed 1 --precision" in text
    assert "although some runs share one" in text


def test_the_curve_is_what_the_tables_say(factory: Any, card: Any) -> None:
    factory.write(factory.spec(), [(36, 0), (34, 6), (30, 10)])

    (figure,) = card().figures.values()

    drawn = figure.numbers[["label", "classes_seen", "mean"]].values.tolist()
    last = 100 * (40 / 60)
    assert drawn[:3] == [["all classes", *each] for each in ((4, 90), (5, 80), (6, last))]
    assert drawn[7:] == [["new classes", *each] for each in ((5, 60), (6, 50))]
    assert math.isnan(drawn[6][2])
    # Cards stand alone: only what was asked for by its seed can be missing.
    assert card().missing == []
    (command,) = card(seeds=(0, 5)).missing
    assert command.endswith("run --method ncm --protocol toy --seeds 5 --precision fp32")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_card_is_one_page(factory: Any, card: Any, tmp_path: Path) -> None:
    many = {f"parameter_{number}": number for number in range(30)}
    for seed in range(10):
        factory.write(
            factory.spec("shown", seed=seed, params=many), environment=ENVIRONMENT, notes={"a": 1}
        )
    document = (
        r"\documentclass{article}\usepackage{booktabs}"
        r"\usepackage[margin=2cm]{geometry}\pagestyle{empty}"
        rf"\begin{{document}}\noindent {latex(card().document)}\end{{document}}"
    )
    (tmp_path / "page.tex").write_text(document)
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "(1 page," in done.stdout
