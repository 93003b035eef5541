"""Writes docs/report.png and docs/report-dialogue.png: a run's report as a browser shows it.

python scripts/report_screenshot.py RUN_DIRECTORY      (needs chromium, chromedriver and selenium)
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.report.chrome import chromium, open_page, wait  # noqa: E402

from counterpoint.report import write_report  # noqa: E402

CHOOSE = """
const form = document.getElementById('filters');
form.elements.phase.value = 'train'; form.elements.change.value = 'corrected'; form.elements.order.value = 'most replies';
form.dispatchEvent(new Event('input'));
"""


def main(run: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = write_report([run], Path(folder) / "report.html")
        with chromium(Path(folder)) as driver:
            open_page(driver, page)
            top = driver.execute_script(
                "return document.querySelector('#results .figures').getBoundingClientRect().bottom"
            )
            shoot(driver, ROOT / "docs" / "report.png", 0, top + 10)
            driver.execute_script(CHOOSE)
            wait(driver, "return document.querySelector('#dialogue .sides')")
            place = "const r = document.getElementById('dialogues').getBoundingClientRect(); return [r.top + scrollY, r.height]"
            y, height = driver.execute_script(place)
            shoot(driver, ROOT / "docs" / "report-dialogue.png", y, min(height, 1100))


def shoot(driver: Any, out: Path, y: float, height: float) -> None:
    clip = {"x": 0, "y": y, "width": 1280, "height": height, "scale": 1}
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    out.write_bytes(base64.b64decode(shot["data"]))
    print(f"written: {out.name}, {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
