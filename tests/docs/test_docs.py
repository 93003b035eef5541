"""The docs say what the code does: the configuration reference is current, the worked example is the file, links exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))


def test_the_configuration_reference_is_current():
    line = [sys.executable, "scripts/config_reference.py", "--check"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_setting_has_a_text():
    rows = re.findall(r"^\| `.*\|$", (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8"), flags=re.M)
    assert len(rows) > 100
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_page_shows_the_example_as_it_is():
    page = (ROOT / "docs" / "add-a-method.md").read_text(encoding="utf-8")
    assert (ROOT / "examples" / "second_look.py").read_text(encoding="utf-8") in page


@pytest.mark.parametrize("page", DOCS, ids=lambda p: p.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_navigation_holds_every_page():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w-]+\.md", text))
    assert named == {page.name for page in DOCS}
