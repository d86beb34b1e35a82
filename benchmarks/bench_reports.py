"""Time to load a results folder of many runs, and to draw reports from it.

The runs are generated into a temporary folder: whole records and predictions of the field's
protocols, ten seeds a row, whose accuracies mean nothing. Loading is timed twice, of records
alone (`Store.runs`, which every report begins with) and with all predictions and metrics
(`load_runs`); then each report asked for is built once. `--browser` opens the site's file in
headless Chromium (selenium, chromium and chromedriver), three times in each view and window, and
prints the median of the seconds until it has loaded, and of those that its main thread computed,
which a busy machine does not lengthen; and by how much the leaderboard and the page are wider
than their room.

    python benchmarks/bench_reports.py [--runs 2000] [--images 50] [--reports site main-table]
        [--keep FOLDER] [--clock cpu] [--browser]

`--reports site --browser` on 2,000 runs, a core that several processes shared (Chromium
headless): the first page computes 0.40 s in its first view (89 rows), 0.50 s with all 326 rows of
all protocols; on that core it had loaded after 9 to 11 s, which says nothing of an idle one. At
1,300 px and at 360 px the page is as wide as the window; the leaderboard fits 1,300 px in every
view.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fscil_bench.api import load_runs, make_report
from fscil_bench.params import params_dict
from fscil_bench.plugins.registry import Registry, load_registry
from fscil_bench.protocol import Protocol
from fscil_bench.spec import RepresentationSpec, RunSpec
from fscil_bench.store.files import now
from fscil_bench.store.runs import RunRecord, SessionRecord, Store

PROTOCOLS = ("cifar100", "cub200", "mini_imagenet", "tiny_imagenet100")
METHODS = ("finetune", "free_lunch", "ldc", "logistic", "ncm")
SEEDS = 10
LOADING, SITE = 5.0, 30.0
"""Seconds that loading and building the site may take."""
VIEWS = ("", "protocol=*", "protocol=*&terms=*")
"""What the address names: the first view, all protocols, all rows of all protocols."""
WINDOWS = ((1300, 900), (360, 800))
LOADED = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
OVERFLOW = (
    "const table = document.getElementById('leaderboard'), box = table.parentElement;"
    "const page = document.documentElement;"
    "return [[...table.tBodies[0].rows].filter(row => !row.hidden).length,"
    "box.scrollWidth - box.clientWidth, page.scrollWidth - page.clientWidth]"
)
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""What time is measured by; `cpu` for a machine that others use too."""


def specifications(registry: Registry) -> Iterator[RunSpec]:
    """Yield specifications without end: seeds, then methods, protocols, and more epochs."""
    epochs = 100
    while True:
        for name in PROTOCOLS:
            protocol = registry.protocol(name)[0].override(epochs=epochs, split="seeded")
            for method in METHODS:
                for seed in range(SEEDS):
                    yield specification(registry, protocol, method, seed)
        epochs += 1


def specification(registry: Registry, protocol: Protocol, method: str, seed: int) -> RunSpec:
    """Return the specification of a run with default parameters; its digests are made up."""
    copied = ("dataset", "base_classes", "class_order", "backbone", "pretraining", "images")
    fields: dict[str, Any] = {name: getattr(protocol, name) for name in (*copied, "recipe")}
    cosine = registry.get("representation", "cosine").value
    representation = RepresentationSpec(
        name="cosine",
        params=params_dict(cosine.Params()),
        seed=0,
        data_fingerprint="0" * 32,
        precision="fp32",
        code="0" * 16,
        engine="benchmark",
        **fields,
    )
    return RunSpec(
        method=method,
        params=params_dict(registry.get("method", method).value.Params()),
        protocol=protocol,
        representation=representation,
        split="seeded",
        shots=None,
        seed=seed,
        code="0" * 16,
        engine="benchmark",
    )


def record(spec: RunSpec, images: int) -> RunRecord:
    """Return a record as large as a real one."""
    protocol = spec.protocol
    sessions = tuple(
        SessionRecord(
            index=t,
            classes_seen=protocol.classes_seen(t),
            learn_seconds=0.5,
            score_seconds=0.1,
            state_bytes=10**6 * (t + 1),
        )
        for t in range(protocol.sessions + 1)
    )
    losses = np.geomspace(4.0, 0.1, protocol.recipe.epochs).tolist()
    return RunRecord(
        key=spec.key,
        spec=spec,
        class_names=tuple(f"class {c}" for c in range(protocol.classes_used)),
        train_images=(500, 500),
        test_images=(images, images),
        sessions=sessions,
        parameters="the method's defaults",
        notes={"generated": "by a benchmark"},
        representation_log={"losses": losses, "rates": losses, "seconds": 1000.0},
        environment={"python": "3", "device": "cpu", "packages": {"torch": "2", "numpy": "2"}},
        created=now(),
    )


def predictions(protocol: Protocol, targets: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return predictions (sessions, n) of which a share falling with the sessions is right.

    As in real runs a sample is easy or hard in all sessions, and taken for the same few classes,
    which decides how well they are compressed.
    """
    difficulty, shift = random.random(len(targets)), random.integers(1, 10, len(targets))
    rows = []
    for t in range(protocol.sessions + 1):
        seen = protocol.classes_seen(t)
        guessed = np.where(difficulty < 0.8 - 0.03 * t, targets, (targets + shift) % seen)
        rows.append(np.where(targets < seen, guessed, -1))
    return np.stack(rows)


def generate(store: Store, count: int, images: int, registry: Registry) -> None:
    """Write `count` runs with `images` test images a class."""
    random = np.random.default_rng(0)
    for spec in islice(specifications(registry), count):
        targets = np.repeat(np.arange(spec.protocol.classes_used), images)
        guesses = predictions(spec.protocol, targets, random)
        store.write(record(spec, images), guesses, targets, {})


def timed(clock: str, title: str, work: Callable[[], Any], target: float | None = None) -> None:
    """Print how long work takes, beside what it may."""
    started = CLOCKS[clock]()
    work()
    beside = f"  (target: under {target:.0f} s)" if target else ""
    print(f"{title:24s} {CLOCKS[clock]() - started:8.2f} s{beside}", flush=True)


def browse(page: Path) -> None:
    """Print how long a site's first page takes to load in Chromium, and what overflows."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for each in ("--headless", "--no-sandbox", "--disable-gpu"):
        options.add_argument(each)
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    try:
        for view, (width, height) in product(VIEWS, WINDOWS):
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            loaded, computed = [], []
            for _ in range(3):
                driver.get("about:blank")
                driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
                driver.get(f"{page.as_uri()}#{view}")
                loaded.append(driver.execute_script(LOADED) / 1000)
                found = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
                computed.append({each["name"]: each["value"] for each in found}["TaskDuration"])
                driver.execute_cdp_cmd("Performance.disable", {})
            rows, *wider = driver.execute_script(OVERFLOW)
            print(
                f"{view or 'first view':20s} {width}×{height}: {median(loaded):.2f} s, computing "
                f"{median(computed):.2f} s; {rows} rows; leaderboard {wider[0]} px, page "
                f"{wider[1]} px wider than their room",
                flush=True,
            )
    finally:
        driver.quit()


@contextmanager
def folder_for(kept: Path | None) -> Iterator[Path]:
    """Give the folder to keep, or a temporary one."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> None:
    """Generate the runs, then time loading and reports."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--images", type=int, default=50, help="test images of a class")
    parser.add_argument("--reports", nargs="*", default=["main-table", "site"])
    parser.add_argument("--keep", type=Path, help="a folder for the runs, not a temporary one")
    parser.add_argument("--browser", action="store_true", help="open the site in Chromium")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    options = parser.parse_args()
    registry = load_registry()
    with folder_for(options.keep) as folder:
        store = Store(folder, folder / "cache")
        title = f"generate {options.runs} runs"
        timed(options.clock, title, lambda: generate(store, options.runs, options.images, registry))
        timed(options.clock, "Store.runs", store.runs, LOADING)
        timed(options.clock, "load_runs", lambda: load_runs(folder), LOADING)
        for name in options.reports:
            if name not in registry.names("report"):
                print(f"report {name}: not registered")
                continue
            protocol = PROTOCOLS[0] if name != "site" else None
            target = SITE if name == "site" else None
            timed(
                options.clock,
                f"report {name}",
                lambda name=name, protocol=protocol: make_report(name, protocol, results=folder),  # type: ignore[misc]
                target,
            )
        if options.browser:
            browse(store.report_folder("site", None) / "index.html")


if __name__ == "__main__":
    main()
