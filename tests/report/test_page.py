"""report.html in a real browser: complete, self-contained, alive."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from sweep import files as store
from sweep.experiment import Cluster, Prune
from sweep.experiment import file as experiment_file
from sweep.graph.home import Home
from sweep.graph.mask_file import make_mask
from sweep.graph.results import evaluations
from sweep.report import charts, write_report
from sweep.report.findings import findings
from sweep.report.glossary import GLOSSARY
from sweep.report.page import write_page
from tests import synthetic
from tests.conftest import need, without
from tests.slurm_cluster import until
from tests.test_house import ROOT


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> Home:
    """160 tickets, 20 quantiles × 8 rewind epochs, with made-up accuracies; one failed, one is missing."""
    made = synthetic.experiment()
    prune = Prune(quantiles=tuple((i + 1) / 21 for i in range(20)), rewind=synthetic.points(*range(8)))
    recipe = dataclasses.replace(made.recipe, epochs=30)
    home = Home(
        tmp_path_factory.mktemp("swept") / "small",
        dataclasses.replace(made, prune=prune, recipe=recipe, cluster=Cluster()),
    )
    chance = np.random.default_rng(0)
    synthetic.write_snapshot(home, synthetic.network().initial(0), None)
    _epochs(synthetic.finish(home, "dense-seed0", 0.9, epochs=30), 0, 30, chance)
    for number, training in enumerate(one for one in home.graph if one.mask):
        quantile = training.mask.level.value
        if training.begin.count == 0:  # the same for every rewind point
            make_mask(home, training.mask)
        if number == 7:
            synthetic.fail(home, training.slug, "loss is nan in epoch 3, </script> step 2 of 9")
        elif number != 9:
            top1, done = (
                0.9 - 0.2 * quantile**4 + 0.002 * chance.normal(),
                {"prunable": 21, "threshold": 0.1, "epochs": training.epochs},
            )
            folder = synthetic.finish(
                home, training.slug, float(top1), density=1 - quantile, kept=21 - round(21 * quantile), **done
            )
            _epochs(folder, training.begin.count, int(training.epochs), chance)
    write_page(home, findings(home), home.report)
    return home


def _epochs(folder: Path, first: int, count: int, chance: np.random.Generator) -> None:
    for epoch in range(first + 1, first + count + 1):
        top1 = float(0.9 - 0.5 / epoch + 0.01 * chance.normal())
        speed = {"images_per_second": 900.0, "data_wait_share": 0.01}
        times = {"seconds": 1.0, "evaluation_seconds": 0.1}
        store.append_metrics(folder, {"epoch": epoch, "validation_top1": top1, **times, **speed})


@pytest.mark.slow
def test_the_page_holds_everything_and_asks_nothing_of_anyone(swept):
    page = (swept.report / "report.html").read_text()
    assert len(page.encode()) < 5e6
    # the addresses that remain are names of formats, not places that are asked
    asked = re.findall(r'(?:src|href)\s*=\s*["\']?(?:https?:)?//[^"\'\s>]+', page)
    assert asked == []
    text = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    for heading in ("Accuracy and weights remaining", "Accuracy and rewind point", "Every ticket", "Verdicts",
                    "What a later rewind point gains",
                    "Every ticket, against the dense network", "Learning curves", "Weights remaining per layer",
                    "Cost", "Failures", "Reproduce"):  # fmt: skip
        assert f">{heading}</h2>" in text and f">{heading}</a>" in text
    assert "One seed: no significance test." in text and "A ticket wins when" in text
    assert "1 of 161 trainings failed." in text and "Unfinished: 1 of 161 trainings are missing (1 waiting)" in text
    assert "loss is nan in epoch 3, &lt;/script&gt; step 2 of 9" in text
    assert "quantiles:" in text and "tensorflow 2.21" in text


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    need([name for name, found in (("chromium", chromium), ("chromium-driver", driver)) if not found], "a real browser")
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    options = Options()
    options.binary_location = str(chromium)
    for word in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=900,1400",
                 f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):  # fmt: skip
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        try:
            made = webdriver.Chrome(options=options, service=Service(str(driver)))
        except WebDriverException:  # a first start may take longer than the driver waits
            made = webdriver.Chrome(options=options, service=Service(str(driver)))
    except WebDriverException as error:
        without(f"a real browser cannot start here: {error.msg}")
    yield made
    made.quit()


def requests(browser) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in sent if url.startswith(("http:", "https:", "ws:", "wss:"))]


def ready(browser) -> bool:
    return browser.execute_script("return document.body && document.body.dataset.ready") == "yes"


def open_page(browser, home: Home) -> None:
    """Returns when the figures stand."""
    browser.get((home.report / "report.html").resolve().as_uri())
    until(lambda: ready(browser), 120)


def test_the_page_stands_in_a_browser_without_errors_or_requests(browser, swept):
    open_page(browser, swept)
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert requests(browser) == []
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('.chart svg')].map(s => s.getBoundingClientRect().width)"
    )
    assert len(drawn) == 8 and all(width > 300 for width in drawn)


def test_the_learning_curve_is_that_of_the_chosen_training(browser, swept):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.select import Select

    open_page(browser, swept)
    choice = Select(browser.find_element(By.CSS_SELECTOR, "#learning select"))
    wanted = synthetic.tickets(swept)[20]
    assert len(choice.options) == 159
    choice.select_by_value(wanted)
    until(lambda: wanted in browser.find_element(By.CSS_SELECTOR, "#learning svg").text)
    line = browser.find_element(By.CSS_SELECTOR, "#learning .mark-line path").get_attribute("d")
    measured = Select(browser.find_elements(By.CSS_SELECTOR, "#learning select")[1])
    assert [one.text for one in measured.options] == [
        "accuracy (%)", "images per second", "share of the time waiting for data (%)",
    ]  # fmt: skip
    measured.select_by_visible_text("images per second")
    until(lambda: browser.find_element(By.CSS_SELECTOR, "#learning .mark-line path").get_attribute("d") != line)


def tooltip(browser) -> str:
    return "".join(
        browser.execute_script(
            "return [...document.querySelectorAll('#vg-tooltip-element.visible')].map(e => e.innerText)"
        )
    )


def test_hovering_over_a_ticket_tells_its_numbers(browser, swept):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    open_page(browser, swept)
    for chart, mark in (("grid", ".mark-rect.role-mark path"), ("curves", ".mark-symbol.role-mark path")):
        found = browser.find_elements(By.CSS_SELECTOR, f"#{chart} {mark}")[5]
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
        ActionChains(browser).move_to_element(found).move_by_offset(1, 1).perform()
        until(lambda: re.search(r"accuracy\s+8\d\.\d\d", tooltip(browser)))
        ActionChains(browser).move_to_element(browser.find_element(By.CSS_SELECTOR, "h1")).perform()


CLIPPED = """
const clipped = [], inside = (inner, outer) => inner.left >= outer.left - 2 && inner.right <= outer.right + 2
  && inner.top >= outer.top - 2 && inner.bottom <= outer.bottom + 2;
if (document.scrollingElement.scrollWidth > innerWidth) clipped.push("the page");
for (const text of document.querySelectorAll(".chart svg text"))
  if (!inside(text.getBoundingClientRect(), text.closest("svg").getBoundingClientRect()))
    clipped.push(text.textContent);
for (const svg of document.querySelectorAll(".chart svg")) {
  const box = svg.closest(".wide");
  if (svg.getBoundingClientRect().width > box.clientWidth + 2 && getComputedStyle(box).overflowX !== "auto")
    clipped.push(svg.closest(".chart").id);
}
for (const table of document.querySelectorAll("table"))  // cards on a phone; wider screens may scroll it in its box
  if (innerWidth <= 640 && table.closest(".wide").scrollWidth > innerWidth - 30) clipped.push(table.innerText);
return clipped;
"""


@pytest.mark.parametrize("width", [360, 390, 500, 768, 1400])
def test_nothing_is_clipped_from_a_phone_to_a_desk(browser, swept, width, tmp_path):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)  # a window cannot be as narrow as a phone
    open_page(browser, swept)
    assert browser.execute_script("return innerWidth") == width
    assert browser.execute_script(CLIPPED) == []
    assert browser.save_screenshot(str(tmp_path / "page.png"))
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def shown(browser) -> list[str]:
    """Accuracies in the lines of the table of tickets, from top to bottom."""
    return browser.execute_script(
        "return [...document.querySelectorAll('table.chosen td[data-head=\"test accuracy\"]')]"
        ".filter(cell => cell.offsetParent).map(cell => cell.innerText)"
    )


def test_the_table_of_tickets_is_sorted_by_a_click_and_filtered_by_words(browser, swept):
    from selenium.webdriver.common.by import By

    open_page(browser, swept)
    before = shown(browser)
    (head,) = browser.find_elements(By.XPATH, "//table[@class='chosen']//button[text()='test accuracy']")
    for way in (sorted, lambda of: sorted(of, reverse=True)):
        browser.execute_script("arguments[0].click()", head)
        known = [one for one in shown(browser) if one != "–"]
        assert known == way(known) and len(known) == 158
    browser.find_element(By.CSS_SELECTOR, ".choose input").send_keys("7ep seed")
    assert 0 < len(shown(browser)) < len(before) == 159
    assert set(shown(browser)) <= set(before)


def test_the_files_of_the_page_are_in_the_page(browser, swept):
    open_page(browser, swept)
    names = [path.name for path in write_report(swept)]
    got = browser.execute_async_script(
        "const done = arguments[0], links = [...document.querySelectorAll('a[download]')];"
        "Promise.all(links.map(async a => [a.download, await (await fetch(a.href)).text()])).then(done)"
    )
    held = dict(got)
    assert held["results.csv"] == (swept.report / "results.csv").read_text() and "results.csv" in names
    assert held["experiment.yaml"] == experiment_file.dump(swept.experiment)
    found = json.loads(held["findings.json"])
    assert len(found["results"]) == 161 and found["answer"] == findings(swept).answer


def test_the_words_of_the_page_are_those_of_the_documentation(browser, swept):
    documented = (ROOT / "docs" / "glossary.md").read_text().replace("`", "")
    for word, meaning in GLOSSARY.items():
        assert re.search(rf"\*\*{word}\*\*.*\| {re.escape(meaning)} \|", documented), word
    page = re.sub(r"<script.*?</script>", "", (swept.report / "report.html").read_text(), flags=re.DOTALL)
    assert '<abbr title="share of the prunable weights that are kept">weights remaining</abbr>' in page
    text = re.sub(r"<style>.*?</style>|<pre>.*?</pre>|<[^>]*>", " ", page, flags=re.DOTALL).partition("Glossary")[0]
    assert re.findall(r"(?<!percentage) points of|\bcells?\b| left\b|cut through|generation|whole network", text) == []


def test_answers_that_were_recorded_are_shown_by_class(swept):
    assert charts.confusion(evaluations(swept)) is None
    path = swept.folder_of("dense-seed0") / "evaluation.json"
    store.write_json(path, {"per_class": {"cat": 0.75, "dog": None}, "confusion": [[3, 1], [0, 0]]})
    squares = charts.confusion(evaluations(swept)).to_dict()["data"]["values"]
    assert [(one["class"], one["answer"], one["images"]) for one in squares] == [
        ("cat (75%)", "cat", 3), ("cat (75%)", "dog", 1), ("dog (–)", "cat", 0), ("dog (–)", "dog", 0),
    ]  # fmt: skip
    path.unlink()


def test_dark_and_light_have_colours_of_their_own(browser, swept):
    open_page(browser, swept)

    def colours(scheme: str) -> list[str]:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        return browser.execute_script(
            "return [getComputedStyle(document.body).backgroundColor, "
            "getComputedStyle(document.querySelector('#curves svg text')).fill]"
        )

    light, dark = colours("light"), colours("dark")
    assert light[0] == "rgb(255, 255, 255)" and dark[0] != light[0] and dark[1] != light[1]
