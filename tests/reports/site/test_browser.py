"""The site in a real browser, opened from a file."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fscil_bench.params import NoParams
from fscil_bench.plugins.registry import Registry, load_registry
from fscil_bench.report import Report
from fscil_bench.reporting.document import write_document
from fscil_bench.reporting.evaluation import Evaluation
from fscil_bench.reporting.frame import Results
from fscil_bench.reports.main_table import MainTable
from fscil_bench.reports.site.report import Site
from fscil_bench.request import Selection
from fscil_bench.store.runs import Store

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="needs a browser: Debian's packages are chromium and chromium-driver",
)

OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SCRIPT = "<script>document.title='taken'</script>"
PATIENCE = 300
"""Seconds to wait at most, on a busy machine."""
ROWS = "return [...document.querySelectorAll('#leaderboard tbody tr')].filter(row => !row.hidden)"
NAMES = f"{ROWS}.map(row => row.querySelector('th a').textContent)"
DRAWN = "return [...document.querySelectorAll('#chart svg path')].filter(p => p.getAttribute('d'))"
TICKS = (
    "return [...document.querySelectorAll('#chart text[text-anchor=end]')].map(t => +t.textContent)"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a browser with an empty profile and no network."""
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for option in (*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.command_executor.client_config.timeout = PATIENCE
    driver.set_page_load_timeout(PATIENCE)
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions",
        {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0},
    )
    yield driver
    driver.quit()


@pytest.fixture
def site(factory: Any, store: Store, tmp_path: Path, registry: Registry) -> Path:
    """Return the folder of a site: CIFAR100 with published rows, and a toy with a figure."""
    registry.add(load_registry().get("protocol", "cifar100"))
    cifar = registry.protocol("cifar100")[0]
    for seed in range(2):
        correct = [(480 - 10 * t - seed, 20 * t) for t in range(9)]
        factory.write(factory.spec("ncm", seed, cifar), correct)
    factory.write(factory.spec("ldc", 0, cifar, params={"steps": 8, "widths": [64, 32]}), correct)
    factory.write(factory.spec("ncm", split="outlier:0.2", protocol=cifar), correct)
    factory.write(factory.spec("far", protocol=cifar), [(6, 0)] * 9)
    factory.write(factory.spec("ncm"))
    odd = factory.write(factory.spec(SCRIPT, protocol=cifar), correct)

    def write(report: type[Report], params: Any, protocol: str | None, folder: Path) -> None:
        runs, evaluation = (*store.runs()[0], odd), Evaluation(store, registry)
        results = Results(registry, Selection(protocol), runs, evaluation=evaluation)
        document = report(results).build(results.frame, params)
        write_document(document, folder, report.name)

    write(MainTable, MainTable.Params(), "toy", store.report_folder("main-table", "toy"))
    write(Site, NoParams(), None, tmp_path / "site")
    return tmp_path / "site"


@pytest.fixture
def opened(browser: Any, site: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page in a window of a width, in light or dark.

    Whatever the pages write to the console fails the test.
    """

    def open_page(name: str = "index.html", width: int = 1280, scheme: str = "light") -> Any:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        page, _, view = name.partition("#")
        browser.get((site / page).as_uri() + (f"#{view}" if view else ""))
        return browser

    yield open_page
    assert browser.get_log("browser") == []


def choose(page: Any, name: str, value: str) -> None:
    page.find_element(By.CSS_SELECTOR, f"select[name={name}] option[value='{value}']").click()


def column(page: Any, heading: str) -> list[float]:
    return page.execute_script(  # type: ignore[no-any-return]
        "const heads = [...document.querySelectorAll('#leaderboard thead th')];"
        "const at = heads.findIndex(h => h.textContent.trim() === arguments[0]);"
        f"{ROWS}.map(row => Number(row.cells[at].dataset.value))",
        heading,
    )


def tab_to(page: Any, selector: str, most: int = 60) -> Any:
    """Press Tab until the element is reached, as who has no mouse does."""
    wanted = page.find_element(By.CSS_SELECTOR, selector)
    for _ in range(most):
        if page.switch_to.active_element == wanted:
            return wanted
        page.switch_to.active_element.send_keys(Keys.TAB)
    raise AssertionError(f"{selector} is not reached by {most} presses of Tab")


def test_sorts_filters_and_toggles(opened: Any) -> None:
    page = opened()

    # The protocol with most runs is chosen at first; published rows stand among the measured.
    kinds = page.execute_script(f"{ROWS}.map(row => row.dataset.kind)")
    assert kinds.count("measured") == 4
    assert kinds.count("published") > 20
    # Rows on other shots than the protocol's would win or lose by them.
    choose(page, "terms", "")
    last = column(page, "Last")
    assert last == sorted(last, reverse=True)
    page.find_element(By.NAME, "published").click()
    assert sorted(page.execute_script(NAMES)) == sorted(["ncm", "ncm", "ldc", "far", SCRIPT])
    assert page.title == "Leaderboard · fscil-bench"  # the script in the name has not run
    count = page.find_element(By.CSS_SELECTOR, "[data-count=leaderboard]").text
    assert count.startswith("5 of ")
    choose(page, "split", "outlier:0.2")
    assert page.execute_script(NAMES) == ["ncm"]
    # The address holds the view, for whoever opens it.
    shown = page.current_url.partition("#")[2]
    assert shown == "terms=*&published=0&split=outlier%3A0.2"
    page.get("about:blank")
    opened("index.html#" + shown)
    assert page.execute_script(NAMES) == ["ncm"]
    assert not page.find_element(By.NAME, "published").is_selected()
    page.find_element(By.CSS_SELECTOR, "[data-clear]").click()
    assert len(page.execute_script(ROWS)) > 20

    # Curves of several protocols are not drawn over one another.
    about = page.find_element(By.ID, "curves-about")
    assert about.text == "Choose one protocol to see its curves."
    choose(page, "protocol", "cifar100")
    page.find_element(By.NAME, "published").click()
    assert len(page.execute_script(DRAWN)) == 5  # "Show all" shows rows on other shots too
    buttons = page.find_elements(By.CSS_SELECTOR, "#legend button")
    assert len(buttons) == 5
    buttons[0].click()
    assert buttons[0].get_attribute("aria-pressed") == "false"
    assert len(page.execute_script(DRAWN)) == 4
    buttons[0].click()
    assert len(page.execute_script(DRAWN)) == 5

    page.find_element(By.NAME, "search").send_keys("no such row")
    assert page.execute_script(ROWS) == []
    assert page.find_element(By.CSS_SELECTOR, "[data-none=leaderboard]").is_displayed()
    assert about.text == "No row to draw."


def test_a_curve_far_from_the_others_leaves_the_axis(opened: Any) -> None:
    page = opened()
    page.find_element(By.NAME, "published").click()
    low, *_, high = page.execute_script(TICKS)

    # All but the last begin at 80 % and end at 62 % or 61.9 %, the last has 1 % or less.
    assert 50 < low < high < 90
    about = page.find_element(By.ID, "curves-about").text
    assert about.endswith("Far from most others and outside the axis: far.")
    choose(page, "protocol", "toy")
    assert "outside the axis" not in page.find_element(By.ID, "curves-about").text


def test_a_point_tells_its_value(opened: Any) -> None:
    page = opened()
    # The first mark of the first measured row, drawn last.
    tip = page.execute_script(
        "const mark = [...document.querySelectorAll('#chart .mark')].at(-9);"
        "const box = mark.getBoundingClientRect();"
        "const at = {clientX: box.x + box.width / 2, clientY: box.y + box.height / 2};"
        "document.getElementById('chart').dispatchEvent(new PointerEvent('pointermove', at));"
        "return document.querySelector('#chart .tip').textContent"
    )
    ends = [s for s in ("79.92 ± 1.06 % (session 0, 60 classes)", "80.00 % (session") if s in tip]
    # 480 and 479 of 600 base images: 79.92 %, and t(1, 97.5 %) · s / √2 = 12.7062 · 0.0833.
    assert ends, tip


def test_two_rows_are_compared_and_a_command_is_copied(opened: Any) -> None:
    page = opened()
    page.find_element(By.NAME, "published").click()
    for name in ("ncm", "ldc"):
        page.find_element(By.XPATH, f"//table//tr[not(@hidden)]/th[a='{name}']//input").click()
    section = page.find_element(By.ID, "compare")
    about = section.find_element(By.ID, "compare-about").text
    lines = [row.text for row in section.find_elements(By.CSS_SELECTOR, "tbody tr")]

    # Both have seed 0: 480 of 600 in the first session; ldc's row there is that of ncm's seed 1.
    assert about == "ncm minus ldc, in points. One pair shares its seeds: no interval."
    assert lines[0] == "First 79.92 79.83 +0.17"
    assert "compare=rows" in page.current_url
    page.refresh()
    assert page.find_element(By.ID, "compare").is_displayed()

    page.set_permissions("clipboard-read", "granted")
    copied = page.find_element(By.XPATH, "//table//tr[not(@hidden)]/th[a='ncm']//button")
    copied.click()
    WebDriverWait(page, PATIENCE).until(lambda _: copied.text == "Copied")
    field = page.find_element(By.NAME, "search")
    field.send_keys(Keys.CONTROL, "v")
    assert "--method ncm" in field.get_attribute("value")


def test_the_shown_rows_are_downloaded(opened: Any) -> None:
    page = opened()
    page.find_element(By.NAME, "published").click()
    text = page.execute_script("return csvOf(document.getElementById('leaderboard'))")
    head, *lines = list(csv.reader(text.splitlines()))

    assert head[:7] == ["Source", "Detail", "Method", "First", "First ±", "Last", "Last ±"]
    ncm = next(line for line in lines if line[2] == "ncm")
    assert len(lines) == 4 and {line[0] for line in lines} == {"measured"}
    assert float(ncm[3]) == pytest.approx(100 * 479.5 / 600)
    assert float(ncm[4]) == pytest.approx(12.7062 / 12, rel=1e-4)


@pytest.mark.parametrize("view", ["", "#protocol=*", "#protocol=*&terms=*"])
def test_the_leaderboard_fits_a_common_window(opened: Any, view: str) -> None:
    page = opened(f"index.html{view}", width=1300)
    wide, room = page.execute_script(
        "const box = document.getElementById('leaderboard').parentElement;"
        "return [box.scrollWidth, box.clientWidth]"
    )
    assert wide <= room


def test_the_keyboard_is_enough(opened: Any) -> None:
    page = opened()

    tab_to(page, "select[name=protocol]")
    tab_to(page, "input[name=published]").send_keys(Keys.SPACE)
    assert len(page.execute_script(ROWS)) == 4
    toggle = tab_to(page, "#legend button")
    toggle.send_keys(Keys.ENTER)
    assert toggle.get_attribute("aria-pressed") == "false"
    sort = tab_to(page, "#leaderboard thead th:nth-child(4) button")
    heading = page.find_element(By.CSS_SELECTOR, "#leaderboard thead th:nth-child(4)")
    assert heading.get_attribute("aria-sort") == "descending"
    sort.send_keys(Keys.ENTER)
    assert heading.get_attribute("aria-sort") == "ascending"
    values = column(page, "Last")
    assert values == sorted(values)
    assert values != sorted(values, reverse=True)
    # What has the focus is marked by more than the browser's thin line.
    assert page.execute_script("return getComputedStyle(arguments[0]).outlineWidth", sort) == "3px"


@pytest.mark.parametrize("name", ["index.html", "reports.html", "runs.html"])
def test_a_narrow_window_scrolls_down_only(opened: Any, site: Path, name: str) -> None:
    own = next((site / "rows").iterdir()), next((site / "runs").iterdir())
    for path in (site / name, *(own if name == "runs.html" else ())):
        page = opened(str(path.relative_to(site)), width=360)
        wide, shown = page.execute_script(
            "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert wide <= shown, path


def test_dark_where_the_system_is(opened: Any) -> None:
    ask = (
        "return [getComputedStyle(document.body).backgroundColor,"
        "getComputedStyle(document.querySelector('#chart text')).fill]"
    )

    def colours(scheme: str) -> Any:
        page = opened(scheme=scheme)
        drawn = (By.CSS_SELECTOR, "#chart text")  # by a script, after the page is there
        WebDriverWait(page, PATIENCE).until(lambda _: page.find_elements(*drawn))
        return page.execute_script(ask)

    assert colours("light") == ["rgb(253, 253, 252)", "rgb(91, 98, 112)"]
    assert colours("dark") == ["rgb(22, 24, 29)", "rgb(160, 167, 180)"]


def test_figures_are_shown_and_runs_open(opened: Any) -> None:
    page = opened("reports.html")
    (picture,) = page.find_elements(By.TAG_NAME, "img")
    page.execute_script("arguments[0].scrollIntoView()", picture)
    WebDriverWait(page, PATIENCE).until(
        lambda _: page.execute_script("return arguments[0].complete", picture)
    )
    assert page.execute_script("return arguments[0].naturalWidth", picture) > 500

    page.find_element(By.LINK_TEXT, "Runs").click()
    page.find_element(By.CSS_SELECTOR, "#runs tbody tr a").click()
    assert "Specification" in page.find_element(By.TAG_NAME, "main").text
    page.find_element(By.CSS_SELECTOR, ".trail a[href*=rows]").click()
    assert "Method" in page.find_element(By.TAG_NAME, "main").text
