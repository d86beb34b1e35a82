from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from fscil_bench.errors import FscilError, StoreError
from fscil_bench.params import NoParams
from fscil_bench.plugins.registry import Registry, load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.report import ReportOutput
from fscil_bench.reporting.document import write_document
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.published import published_rows
from fscil_bench.reports.site.report import Site
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store, StoredRun

SCRIPT = "<script>alert(1)</script>"
CIFAR = [(480 - 10 * t, 20 * t) for t in range(9)]


@pytest.fixture
def make(store: Store, tmp_path: Path, registry: Registry) -> Any:
    """Return a function that builds the site of all stored runs, or of those given."""

    def build(runs: list[StoredRun] | None = None, **asked: Any) -> ReportOutput:
        stored = tuple(store.runs()[0] if runs is None else runs)
        evaluation = Evaluation(store, registry)
        results = Results(registry, Selection(**asked), stored, evaluation=evaluation)
        document = Site(results).build(results.frame, NoParams())
        return write_document(document, tmp_path / "site", "site")

    return build


@pytest.fixture
def cifar(registry: Registry) -> Protocol:
    """Return CIFAR100's protocol, which is registered then."""
    registry.add(load_registry().get("protocol", "cifar100"))
    protocol: Protocol = registry.protocol("cifar100")[0]
    return protocol


class Page(HTMLParser):
    """What a page's elements say: tags with attributes, and the text of scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        in_script = self.tags and self.lasttag == "script" and self.cdata_elem == "script"
        (self.scripts if in_script else self.texts).append(data)

    def all(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        """Return the attributes of all elements of a tag that have the wanted ones."""
        own = [attributes for name, attributes in self.tags if name == tag]
        return [each for each in own if wanted.items() <= each.items()]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def addresses(page: Page) -> Iterator[str]:
    for _, attributes in page.tags:
        for name in ("href", "src"):
            value = attributes.get(name)
            if value is not None and value != "data:,":
                yield value


def page_of(output: ReportOutput, name: str = "index.html") -> Path:
    """Return a page of a site."""
    return next(path for path in output.files if path.name == "index.html").parent / name


def leaderboard(output: ReportOutput) -> list[dict[str, str]]:
    """Return the lines of a site's leaderboard as CSV."""
    return lines_of(page_of(output, "data/leaderboard.csv"))


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_address_is_relative_and_there(
    factory: Any, make: Any, cifar: Protocol, store: Store
) -> None:
    factory.write(factory.spec("ncm"))
    factory.write(factory.spec("ncm", protocol=cifar), CIFAR)
    folder = store.report_folder("main-table", "toy")
    folder.mkdir(parents=True)
    (folder / "odd # name.png").write_bytes(b"picture")
    first = page_of(make())

    pages = sorted(first.parent.rglob("*.html"))
    # Leaderboard, reports and runs; two rows, two runs; the published.
    assert len(pages) == 3 + 2 + 2 + len(published_rows(cifar))
    for path in pages:
        page = Page(path)
        for address in addresses(page):
            target, _, anchor = address.partition("#")
            if page.all("a", href=address, rel="external"):
                continue
            assert not re.match(r"^[a-z]+:|^//", target), address
            found = (path.parent / unquote(target)) if target else path
            assert found.is_file(), f"{path}: {address}"
            if anchor and found.suffix == ".html":
                assert [a for _, a in Page(found).tags if a.get("id") == anchor], address
    # Everything but copies of reports is small enough to be sent by mail.
    assert sum(path.stat().st_size for path in first.parent.glob("assets/*")) < 50_000


def test_a_row_by_hand(factory: Any, make: Any) -> None:
    for seed, last in enumerate([(30, 10), (30, 16)]):  # of 60 images: 66.67 % and 76.67 %
        factory.write(factory.spec("ncm", seed), [(36, 0), (34, 6), last])
    output = make()
    page = Page(page_of(output))
    (line,) = leaderboard(output)

    assert "2 runs in 1 row," in output.text
    (row,) = page.all("tr", **{"class": "measured"})
    assert (row["data-protocol"], row["data-split"], row["data-views"]) == (
        *("toy", "seeded", "plain"),
    )
    # Half-width: t(1, 97.5 %) · s / √2 = 12.7062 · 5 = 63.53, so that it would leave 0 to 100 %.
    assert "71.67 ± –" in page.text
    sortable = [cell["data-value"] for cell in page.all("td", **{"class": "number"})]
    assert pytest.approx(215 / 3) in [float(value) for value in sortable if value]
    assert float(line["last_mean"]) == pytest.approx(215 / 3)
    assert float(line["first_mean"]) == pytest.approx(90.0)
    assert float(line["performance_drop_mean"]) == pytest.approx(90 - 215 / 3)
    assert (line["kind"], line["runs"], line["method"]) == ("measured", "2", "ncm")
    (curve,) = json.loads(page.scripts[0])
    assert (curve["session"], curve["seen"]) == ([0, 1, 2], [4, 5, 6])
    assert curve["mean"] == pytest.approx([90, 80, 215 / 3])
    assert curve["half"] == pytest.approx([0, 0, 63.531], rel=1e-4)


def test_what_compares_and_reproduces_a_row(factory: Any, make: Any) -> None:
    for seed in (0, 1, 3):
        factory.write(factory.spec("ncm", seed))
        factory.write(factory.spec("ldc", seed))
    factory.write(factory.spec("ncm", 0, representation={"seed": 1}))
    factory.write(factory.spec("ldc", split="outlier:0.2"))
    output = make()
    page = Page(page_of(output))
    compared = json.loads(page.scripts[1])
    rows = {row["name"]: row for row in compared["rows"]}

    # Student's t for 1, 2 and 3 degrees of freedom, as printed tables have it.
    assert compared["t"] == pytest.approx([12.706, 4.303, 3.182], abs=1e-3)
    assert compared["figures"][:2] == ["First", "Last"]
    assert list(rows["ncm"]["runs"]) == ["0/0", "0/1", "0/3", "1/0"]
    assert rows["ncm"]["runs"]["0/3"][:2] == pytest.approx([90, 200 / 3], abs=1e-6)
    other = next(row for name, row in rows.items() if "outlier" in name)
    assert rows["ncm"]["equal"] == rows["ldc"]["equal"] != other["equal"]
    commands = [
        button["data-copy"] or ""
        for button in page.all("button", type="button")
        if "data-copy" in button
    ]
    (ncm,) = (c for c in commands if "--method ncm" in c)
    first, second = ncm.splitlines()
    assert "--seeds 0-1,3" in first and "--representation-seed" not in first
    assert "--seeds 0" in second and "--representation-seed 1" in second
    own = Page(page_of(output, rows["ncm"]["page"]))
    assert first in own.text
    curves = json.loads(own.scripts[0])
    assert [curve["name"] for curve in curves] == ["All classes", "Base classes", "New classes"]
    assert curves[2]["session"] == [1, 2]


def test_backbones_have_one_spelling(factory: Any, make: Any, cifar: Protocol) -> None:
    factory.write(factory.spec("ncm", protocol=cifar), CIFAR)
    page = Page(page_of(make()))

    options = [o["value"] for o in page.all("option") if (o["value"] or "").startswith("res")]
    assert options == ["resnet12", "resnet18", "resnet20"]


def test_sessions_and_runs_as_csv(factory: Any, make: Any) -> None:
    factory.write(factory.spec("ncm", 3))
    output = make()
    sessions, runs = (
        lines_of(page_of(output, f"data/{name}.csv")) for name in ("sessions", "runs")
    )

    assert [line["session"] for line in sessions] == ["0", "1", "2"]
    assert [float(line["new"]) for line in sessions[1:]] == [0.6, 0.5]
    assert sessions[0]["new"] == ""  # nothing to count
    assert [line["images"] for line in sessions] == ["40", "50", "60"]
    assert [line["state_bytes"] for line in sessions] == ["2048", "4096", "6144"]
    assert (runs[0]["seed"], runs[0]["method"]) == ("3", "ncm")
    assert float(runs[0]["last"]) == pytest.approx(200 / 3)
    assert "folder" not in runs[0]


def test_published_rows_stand_apart(factory: Any, make: Any, cifar: Protocol) -> None:
    run = factory.write(factory.spec("ncm", protocol=cifar), CIFAR)
    output = make(protocol="cifar100")
    page = Page(page_of(output))
    lines = leaderboard(output)

    published = page.all("tr", **{"class": "published", "data-kind": "published"})
    assert len(published) == len(published_rows(cifar))
    assert len(page.all("tr", **{"class": "measured"})) == 1
    measured = [line for line in lines if line["kind"] == "measured"]
    assert [float(line["last_mean"]) for line in measured] == [100 * run.accuracies[-1]]
    fact = next(line for line in lines if line["method"] == "FACT")
    assert (fact["kind"], fact["last_mean"], fact["runs"]) == ("published", "52.1", "")
    assert fact["last_half_width"] == ""
    last = [float(line["last_mean"]) for line in lines]
    assert last == sorted(last, reverse=True)
    papers = [Page(path) for path in (page_of(output).parent / "published").iterdir()]
    links = [a["href"] for each in papers for a in each.all("a", rel="external")]
    assert "https://arxiv.org/abs/2004.10956" in links


def test_unknown_sessions_break_a_curve(factory: Any, make: Any, cifar: Protocol) -> None:
    factory.write(factory.spec("ncm", protocol=cifar), CIFAR)
    curves = json.loads(Page(page_of(make())).scripts[0])
    known = {row.method: row for row in published_rows(cifar)}
    gaps = [row for row in known.values() if sorted(row.values) == [0, 8]]

    assert gaps
    for row in gaps:
        (curve,) = (c for c in curves if c["name"] == row.method and c["kind"] == "published")
        assert curve["session"] == [0, None, 8]
        first, last = float(row.values[0].text), float(row.values[8].text)
        assert curve["mean"] == [first, None, last]


def test_names_are_shown_as_they_are(factory: Any, make: Any) -> None:
    odd = [*(f"class {c}" for c in range(5)), "\"quoted' </p><img src=x onerror=alert(2)>"]
    spec = factory.spec(SCRIPT, params={"text": "</script><b>"})
    run = factory.write(spec, class_names=tuple(odd), notes={"<i>note": "<u>"}, flags=("<s>",))
    folder = page_of(make([run])).parent

    for path in folder.rglob("*.html"):
        page = Page(path)
        text = path.read_text(encoding="utf-8")
        assert "alert(1)</script>" not in text
        assert not [tag for tag, _ in page.tags if tag in ("b", "i", "u", "s", "img")], path
        assert not [a for _, a in page.tags if "onerror" in a]
    index = Page(folder / "index.html")
    assert json.loads(index.scripts[0])[0]["name"].startswith(SCRIPT)
    assert SCRIPT in index.text
    row = Page(folder / "rows" / f"{run.spec.row}.html")
    assert odd[-1] in row.text


def test_a_run_page_tells_how_it_was_made(factory: Any, make: Any) -> None:
    run = factory.write(
        factory.spec("ncm", 7),
        environment={"python": "3.11.1", "packages": {"torch": "2.9"}},
        notes={"repaired": 3},
        representation_log={"losses": [4.0, *[2.0] * 8, 0.5]},
    )
    folder = page_of(make()).parent
    text = Page(folder / "runs" / f"{run.key}.html").text

    for part in (
        "fscil-bench run --method ncm",
        "--seeds 7",
        "packages.torch 2.9",
        "repaired 3",
        "protocol.recipe.epochs 100",
        "losses 4, 2, 2, … 0.5 (10 values)",
        "training images a class 500",
    ):
        assert part in text


def test_a_run_that_its_row_leaves_out_says_so(factory: Any, make: Any) -> None:
    old = factory.write(factory.spec("ncm", code="m0"), created="2023-01-01T00:00:00+00:00")
    new = factory.write(factory.spec("ncm"))
    folder = page_of(make()).parent

    assert "not averaged in its row" in Page(folder / "runs" / f"{old.key}.html").text
    assert "averaged in its row" in Page(folder / "runs" / f"{new.key}.html").text
    assert "not averaged" not in Page(folder / "runs" / f"{new.key}.html").text


def test_details_begin_with_what_tells_rows_apart(factory: Any, make: Any) -> None:
    for s, w in ((1, 9), (2, 9), (3, 9), (3, 5)):
        factory.write(factory.spec("ldc", params={"steps": s, "widths": [w], "text": "a, b"}))
    details = {line["detail"] for line in leaderboard(make())}

    assert details == {
        "(steps=1, widths=[9])",
        "(steps=2, widths=[9])",
        "(steps=3, widths=[9])",
        "(widths=[5], steps=3)",
    }


def test_rows_on_the_protocol_s_terms_have_short_names(factory: Any, make: Any) -> None:
    usual, params = {"steps": 8, "widths": [64, 32]}, {"steps": 1, "widths": [64, 32]}
    factory.write(factory.spec("ldc", params=usual))
    factory.write(factory.spec("ldc", params=usual, split="outlier:0.1"))
    factory.write(factory.spec("ldc", params=params))

    assert {(line["detail"], line["terms"]) for line in leaderboard(make())} == {
        ("", "usual"),
        ("(steps=8, split=outlier:0.1)", "other"),
        ("(steps=1, split=seeded)", "other"),
    }


def test_reports_are_shown_with_their_files(factory: Any, make: Any, store: Store) -> None:
    factory.write(factory.spec("ncm"))
    for report, protocol in (("main-table", "toy"), ("other", "elsewhere"), ("site", "toy")):
        folder = store.report_folder(report, protocol) / "rows=1"
        folder.mkdir(parents=True)
        for name in ("curve.png", "curve.pdf", "curve.csv", "table.tex", "unknown.exe"):
            (folder / name).write_text(name)
        (folder / "table.md").write_text(
            f"# Head\n\n| a |\n|---|\n| {SCRIPT} |\n\n![x](http://example.org/x.png)\n"
        )
    folder = page_of(make(protocol="toy")).parent
    page = Page(folder / "reports.html")

    (picture,) = page.all("img")
    assert picture["src"] == "reports/toy/main-table/rows%3D1/curve.png"
    assert picture["alt"] and picture["alt"].startswith("curve: ")
    assert (folder / "reports/toy/main-table/rows=1/curve.png").read_text() == "curve.png"
    names = {path.name for path in (folder / "reports").rglob("*") if path.is_file()}
    assert names == {"curve.png", "curve.pdf", "curve.csv", "table.tex", "table.md"}
    assert SCRIPT in page.text
    assert not page.all("script")
    assert len(page.all("h4")) == 1


def test_what_lies_elsewhere_is_not_copied_and_odd_text_is_shown(
    factory: Any, make: Any, store: Store, tmp_path: Path
) -> None:
    factory.write(factory.spec("ncm"))
    (tmp_path / "private").mkdir()
    for name in ("secret.csv", "private/secret.csv"):
        (tmp_path / name).write_text("secret")
    folder = store.report_folder("main-table", "toy")
    folder.mkdir(parents=True)
    (folder / "table.md").write_bytes(b"caf\xe9")
    (folder / "table.csv").symlink_to(tmp_path / "secret.csv")
    (folder.parent / "linked").symlink_to(tmp_path / "private", target_is_directory=True)
    site = page_of(make(protocol="toy")).parent

    names = {path.name for path in (site / "reports").rglob("*") if path.is_file()}
    assert names == {"table.md"}
    assert "caf\ufffd" in Page(site / "reports.html").text


def test_damaged_runs_are_named_and_left_out(factory: Any, make: Any) -> None:
    factory.write(factory.spec("ncm"))
    damaged = factory.write(factory.spec("ldc"))
    (damaged.folder / "predictions.npz").write_bytes(b"nonsense")
    output = make()

    assert len(output.warnings) == 1
    assert damaged.key in output.warnings[0]
    assert "1 run left out, which could not be read" in Page(page_of(output)).text
    assert [line["method"] for line in leaderboard(output)] == ["ncm"]


def test_records_of_elsewhere_cost_nothing(factory: Any, make: Any) -> None:
    factory.write(factory.spec("ncm"))
    # Two rows that no label tells apart, one of them on a network that is not known here.
    for changes in ({}, {"class_order": "zz"}, {"backbone": "vit9"}):
        run = factory.write(factory.spec("ldc", representation=changes))
    output = make()

    assert {line["method"] for line in leaderboard(output)} == {"ncm", "ldc"}
    row = Page(page_of(output, f"rows/{run.spec.row}.html"))
    assert "vit9 (not known here)" in row.text
    assert len(list((page_of(output).parent / "runs").iterdir())) == 4


def test_nothing_to_show(factory: Any, make: Any) -> None:
    with pytest.raises(FscilError, match=r"run --method ncm --protocol PATH/TO/glyphs\.toml"):
        make()
    run = factory.write(factory.spec("ncm"))
    with pytest.raises(FscilError, match="protocols with runs: toy"):
        make(methods=("ldc",))
    (run.folder / "predictions.npz").unlink()
    with pytest.raises(StoreError, match="no run can be read"):
        make()
