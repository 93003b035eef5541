"""Ten thousand episodes: the report within 20 s and 1 GB, and a browser that pages instead of freezing."""

import json
import subprocess
import sys

import pytest

from tests.report.chrome import chromium, open_page, wait

pytestmark = pytest.mark.slow
# The peak is read from /proc: getrusage would hand down that of the process that started it.
CODE = """
import sys, time
from pathlib import Path
from counterpoint.report import write_report
start = time.perf_counter()
path = write_report([Path(sys.argv[1])], Path(sys.argv[2]))
peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(time.perf_counter() - start, int(peak[0]) / 1024, path.stat().st_size / 1e6)
"""


def grow(root, dialogues):
    """As many whole steps as it takes: the first step again under new numbers. (dialogues, dialogues and forks)"""
    lines = (root / "train" / "000001.jsonl").read_text().splitlines()
    metrics = json.loads((root / "metrics.jsonl").read_text().splitlines()[0])
    mains = sum('"fork":null' in line for line in lines)
    steps = -(-(dialogues - 9 * 40) // mains)
    with (root / "metrics.jsonl").open("w") as file:
        for step in range(1, steps + 1):
            file.write(json.dumps({**metrics, "step": step}) + "\n")
            renamed = "\n".join(line.replace("train/1/", f"train/{step}/") for line in lines)
            (root / "train" / f"{step:06d}.jsonl").write_text(renamed + "\n")
    return steps * mains + 9 * 40, steps * len(lines) + 9 * 40


def test_ten_thousand_episodes(copy, tmp_path):
    root = copy("immediate")
    total, records = grow(root, 10_000)
    page = tmp_path / "big.html"
    done = subprocess.run([sys.executable, "-c", CODE, root, page], capture_output=True, text=True, check=True)
    seconds, megabytes, size = map(float, done.stdout.split())
    print(
        f"{total} dialogues, {records} episodes with forks: {seconds:.1f} s, {megabytes:.0f} MB of memory, {size:.1f} MB of HTML"
    )
    assert seconds * 10_000 / records <= 20  # forks are episodes too: they are read, graded and shown
    assert megabytes <= 1000
    with chromium(tmp_path / "chrome") as driver:
        open_page(driver, page)
        assert driver.execute_script("return document.getElementById('count').textContent").startswith(f"{total:,} of")
        assert driver.execute_script("return document.querySelectorAll('#list li').length") == 50
        took = driver.execute_script("""
          const start = performance.now();
          for (let i = 0; i < 20; i += 1) document.getElementById('forward').click();
          return (performance.now() - start) / 20""")
        loaded = driver.execute_script("return performance.now()")
        wait(driver, "return document.getElementById('page').textContent.startsWith('page 21 of')")
        assert took < 200
        print(f"page ready after {loaded:.0f} ms, {took:.1f} ms to turn a page")
