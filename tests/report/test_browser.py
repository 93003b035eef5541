"""The page in a headless Chromium: plots drawn, filters and keys work, nothing a model wrote runs."""

import json

import pytest

from counterpoint.report import write_report
from tests.report.chrome import chromium, open_page, wait
from tests.report.test_page import PLAIN

COUNT = "return document.getElementById('count').textContent"
SHOWN = "return document.querySelector('#dialogue h3').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("chrome")) as driver:
        yield driver


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    both = write_report([runs / "immediate", runs / "outcome"], folder / "both.html")
    return {"both": both} | {name: write_report([runs / name], folder / f"{name}.html") for name in PLAIN}


def keys(driver, *pressed):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*pressed).perform()


def choose(driver, name, value):
    driver.execute_script(
        "const f = document.getElementById('filters'); f.elements[arguments[0]].value = arguments[1];"
        "f.dispatchEvent(new Event('input'))",
        name,
        value,
    )


def resize(driver, width, scheme):
    metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.mark.parametrize("name", ["both", *PLAIN])
def test_every_plot_is_drawn_and_the_console_is_silent(browser, pages, name):
    resize(browser, 1280, "light")
    browser.get_log("browser")
    open_page(browser, pages[name])
    assert browser.get_log("browser") == []
    plots = browser.execute_script("""
      return [...document.querySelectorAll('.plot')].map((plot) => {
        const svgs = [...plot.querySelectorAll('.panel svg')];
        return [plot.id, svgs.length, Math.min(...svgs.map((s) => s.querySelectorAll('path, circle, rect, line').length))];
      })""")
    assert len(plots) >= 6
    assert all(count >= 1 and least >= 1 for _, count, least in plots), plots


def test_nothing_is_asked_of_a_network(browser, pages):
    browser.get_log("performance")
    open_page(browser, pages["both"])
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked), asked


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_readable(browser, pages, width, scheme):
    """Nothing is wider than the window, and text stands out from what is behind it (WCAG AA: 4.5)."""
    resize(browser, width, scheme)
    open_page(browser, pages["both"])
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    spilled = browser.execute_script("""
      return [...document.querySelectorAll('main *')].filter((e) => !e.closest('.scroll, nav, svg, #list') &&
        e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.className || e.tagName)""")
    assert spilled == []
    ratios = browser.execute_script("""
      const lum = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map((v) => { v /= 255;
        return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
        if (!/, 0\\)$|transparent/.test(c)) return c; } return 'rgb(255,255,255)'; };
      return [...document.querySelectorAll('p, td, th, dd, dt, h1, h2, h3, h4, li, pre, .meta, .good, .bad, .unsure, b')]
        .filter((e) => e.textContent.trim() && e.offsetParent && !e.closest('svg')).map((e) => {
          const [a, b] = [lum(getComputedStyle(e).color), lum(behind(e))].sort((x, y) => y - x);
          return [(a + 0.05) / (b + 0.05), e.className || e.tagName, e.textContent.slice(0, 20)]; })
        .sort((x, y) => x[0] - y[0])[0]""")
    assert ratios[0] >= 4.5, ratios


def test_the_theme_button_draws_again(browser, pages):
    resize(browser, 1280, "light")
    open_page(browser, pages["immediate"])
    drawn = "return [document.documentElement.dataset.theme, Number(document.documentElement.dataset.drawn)]"
    assert browser.execute_script(drawn) == ["light", 1]
    browser.execute_script("document.getElementById('theme').click()")
    assert browser.execute_script(drawn) == ["dark", 2]


def test_tables_say_what_plots_draw(browser, pages):
    open_page(browser, pages["immediate"])
    browser.execute_script("document.querySelectorAll('details.rows').forEach((d) => { d.open = true; })")
    wait(browser, "return [...document.querySelectorAll('details.rows')].every((d) => d.querySelectorAll('td').length)")


def test_filters(browser, pages):
    resize(browser, 1280, "light")
    open_page(browser, pages["immediate"])
    assert browser.execute_script(COUNT) == "432 of 432 dialogues"
    choose(browser, "phase", "train")
    assert browser.execute_script(COUNT) == "72 of 432 dialogues"
    choose(browser, "change", "harmed")
    words = browser.execute_script("return [...document.querySelectorAll('#list li span')].map((s) => s.textContent)")
    assert set(words) == {"✗ harmed"}
    wait(browser, "return document.querySelector('#dialogue .outcome')?.textContent.includes('harmed')")
    choose(browser, "change", "")
    choose(browser, "phase", "")
    choose(browser, "set", "mini-math")
    choose(browser, "final", "right")
    choose(browser, "longest", "2")
    assert 0 < int(browser.execute_script(COUNT).split()[0]) < 120
    choose(browser, "text", "no such id")
    assert browser.execute_script(COUNT).startswith("0 of")
    browser.execute_script("document.querySelector('#filters button[type=reset]').click()")
    wait(browser, "return document.getElementById('count').textContent === '432 of 432 dialogues'")


def test_keyboard(browser, pages):
    from selenium.webdriver.common.keys import Keys

    open_page(browser, pages["immediate"])
    browser.execute_script("document.getElementById('list').focus()")
    ids = browser.execute_script("return [...document.querySelectorAll('#list li bdi')].map((b) => b.textContent)")
    keys(browser, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    wait(browser, f"{SHOWN} === {json.dumps(ids[2])}")
    keys(browser, "k")
    wait(browser, f"{SHOWN} === {json.dumps(ids[1])}")
    keys(browser, Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "dialogue"
    keys(browser, "j")
    wait(browser, f"{SHOWN} === {json.dumps(ids[2])}")
    keys(browser, Keys.ESCAPE)
    assert browser.execute_script("return document.activeElement.id") == "list"
    keys(browser, Keys.ARROW_RIGHT)
    wait(browser, "return document.getElementById('page').textContent.startsWith('page 2')")
    keys(browser, Keys.END)
    wait(browser, "return document.getElementById('page').textContent === 'page 9 of 9'")
    selected = browser.execute_script("return document.querySelectorAll('#list [aria-selected=true]').length")
    assert selected == 1


def test_a_dialogue_shows_credit_and_its_counterfactual_beside_it(browser, pages):
    open_page(browser, pages["outcome"])
    choose(browser, "phase", "train")
    choose(browser, "shortest", "3")
    wait(browser, "return document.querySelector('#dialogue .branch')")
    text = browser.execute_script("return document.getElementById('dialogue').textContent")
    for word in (
        "p(speak)",
        "worth: silent",
        "reward",
        "advantage",
        "verdict:",
        "answer:",
        "had it been:",
        "more candidates",
    ):
        assert word in text
    sides = browser.execute_script("""
      const two = document.querySelector('#dialogue .sides.two'); if (!two) return null;
      const [a, b] = [...two.children].map((c) => c.getBoundingClientRect()); return [a.right <= b.left, a.top === b.top]""")
    assert sides == [True, True]


def test_hostile_replies_are_text_and_do_nothing(browser, pages):
    resize(browser, 1280, "light")
    browser.get_log("browser")
    open_page(browser, pages["hostile"])
    seen = ""
    for i in range(40):
        browser.execute_script(
            "document.getElementById('list').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}))"
        )
        wait(browser, f"return document.querySelector('#list [aria-selected=true]').id === 'row-{i + 1}'")
        browser.execute_script(
            "document.querySelectorAll('#dialogue button, #dialogue summary').forEach((b) => b.click())"
        )
        seen += browser.execute_script("return document.getElementById('dialogue').textContent")
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.execute_script("return window.hit ?? null") is None
    assert browser.execute_script("return document.querySelectorAll('#dialogue script, #dialogue img').length") == 0
    for shown in ("<script>window.hit=1</script>", "</script><script>window.hit=2", "<img src=x onerror=", "{{ 7*7 }}"):
        assert shown in seen
    for mark in ("U+202E", "U+2066", "U+200F", "U+001B", "U+0000"):
        assert mark in seen
    assert "x" * 100_000 in seen
    assert browser.get_log("browser") == []


@pytest.mark.slow
def test_a_run_of_the_bundled_model(browser, tmp_path):
    """The default run, shortened: real replies, real curves."""
    from counterpoint.config import load_config
    from counterpoint.train import train

    config = load_config(None, ["steps=3", "dialogues=8", "evaluation.limit=12"])
    train(config, tmp_path / "run")
    page = write_report([tmp_path / "run"])
    assert page.stat().st_size < 6_000_000
    test_every_plot_is_drawn_and_the_console_is_silent(browser, {"run": page}, "run")
    assert browser.execute_script(COUNT).endswith("dialogues")
