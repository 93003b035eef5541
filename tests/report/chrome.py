"""A headless Chromium for the tests of the page; they skip, and say so, where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip


@contextmanager
def chromium(folder: Path, *, width: int = 1280, height: int = 1000, dark: bool = False) -> Iterator[Any]:
    """A driver of a fresh profile in `folder`, whose page is exactly `width` wide."""
    binary, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver_path is None:
        pytest.skip("needs chromium and chromedriver (Debian: chromium, chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    try:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield driver
    finally:
        driver.quit()


def open_page(driver: Any, page: Path) -> None:
    """Load a report and wait until its plots are drawn and its dialogues are there."""
    driver.get(page.as_uri())
    wait(driver, "return document.documentElement.dataset.ready === 'yes'")


def wait(driver: Any, script: str, seconds: float = 20) -> None:
    """Until `script` returns something true."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, seconds, poll_frequency=0.05).until(lambda d: d.execute_script(script))


def whole_page(driver: Any, out: Path, height: int | None = None) -> None:
    """A screenshot of the page from its top to its end, or to `height`."""
    import base64

    size = driver.execute_script("return [document.documentElement.clientWidth, document.body.scrollHeight]")
    clip = {"x": 0, "y": 0, "width": size[0], "height": height or size[1], "scale": 1}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    out.write_bytes(base64.b64decode(shot["data"]))
