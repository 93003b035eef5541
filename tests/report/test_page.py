"""The page as a file: nothing is asked of a network, nothing a model wrote is markup, the size is kept."""

import base64
import gzip
import json
import re
import subprocess
import sys

import pytest

from counterpoint.report import write_report
from tests.report.build import HOSTILE

PLAIN = ("immediate", "outcome", "thinkers", "voters", "hostile")


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_report([runs / name], folder / f"{name}.html") for name in PLAIN}


def markup(text):
    """The page without its scripts."""
    return re.sub(r"<script\b.*?</script>", "", text, flags=re.S)


def unpacked(text, what):
    found = re.findall(rf'<script type="text/plain" id="{what}">(.*?)</script>', text)
    return [json.loads(gzip.decompress(base64.b64decode(part))) for part in found]


@pytest.mark.parametrize("name", PLAIN)
def test_self_contained(pages, name):
    text = pages[name].read_text(encoding="utf-8")
    assert len(text.encode()) <= 6_000_000
    links = re.findall(r"""<[^<>]+\s(?:src|href)\s*=\s*["']?([^"'\s>]*)""", markup(text))
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert "@import" not in text
    assert re.findall(r'content="(default-src[^"]*)"', text)[0].startswith("default-src &#39;none&#39;")


def test_a_gain_is_coloured_where_its_interval_excludes_zero_only(pages):
    seen = 0
    for name in PLAIN:
        for sure, low, high in re.findall(
            r'<span class="gain (\w*)">\S+ \[(\S+), (\S+)\] over', pages[name].read_text(encoding="utf-8")
        ):
            seen += 1
            assert sure == ("up" if float(low) > 0 else "down" if float(high) < 0 else "")
    assert seen > 3


def test_nothing_a_model_wrote_is_in_the_page_as_markup(pages):
    text = pages["hostile"].read_text(encoding="utf-8")
    assert "window.hit" not in text
    assert "onerror" not in markup(text)
    replies = [
        r["text"] for block in unpacked(text, r"block-\d+") for d in block for m in d["moves"] for r in m["replies"]
    ]
    for nasty in HOSTILE:
        assert any(nasty in reply or nasty[:4000] == reply[:4000] for reply in replies)


def test_settings_are_escaped(copy, tmp_path):
    root = copy("voters")
    config = root / "config.yaml"
    config.write_text(config.read_text().replace("name: tiny", "name: '<img src=x onerror=hit()>'"))
    text = write_report([root], tmp_path / "x.html").read_text(encoding="utf-8")
    assert "&lt;img src=x onerror=hit()&gt;" in text
    assert "<img" not in markup(text)


def test_the_browser_holds_every_dialogue_or_says_that_it_does_not(pages, runs, tmp_path):
    text = pages["immediate"].read_text(encoding="utf-8")
    [index] = unpacked(text, "index")
    dialogues = [d for block in unpacked(text, r"block-\d+") for d in block]
    assert [row[4] for row in index] == [d["id"] for d in dialogues]
    assert len(index) == 9 * 40 + 6 * 12
    fewer = write_report([runs / "immediate"], tmp_path / "few.html", limit=100).read_text(encoding="utf-8")
    assert len(unpacked(fewer, "index")[0]) <= 110
    assert "the browser holds every 5th dialogue" in fewer


def test_every_plot_has_a_text_alternative_with_figures(pages):
    for page in pages.values():
        text = page.read_text(encoding="utf-8")
        labels = re.findall(r'role="img" aria-label="([^"]*)"', text)
        assert len(labels) == text.count('<div class="plot"')
        assert all(re.search(r"\d", label) or "none" in label for label in labels)


def test_two_writings_are_equal(runs, tmp_path):
    first = write_report([runs / "voters"], tmp_path / "a.html").read_bytes()
    assert first == write_report([runs / "voters"], tmp_path / "b.html").read_bytes()


@pytest.mark.parametrize(
    "line",
    [
        ["report", "{run}", "--out", "{out}"],
        ["show", "{run}", "eval/mini-gsm/test/3"],
        ["show", "{run}", "--worst", "wrong"],
        ["watch", "{run}", "--once"],
    ],
)
def test_files_only_no_torch(runs, tmp_path, line):
    words = [w.format(run=runs / "immediate", out=tmp_path / "r.html") for w in line]
    code = (
        "import sys\nfrom counterpoint.cli import app\n"
        f"try:\n    app({words!r})\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert not {'torch', 'transformers', 'peft'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "{here}"], "no run in"),
        (["watch", "{here}"], "no run in"),
        (["show", "{run}"], "say which dialogue"),
        (["show", "{run}", "--worst", "ugly"], "choose harmed, wrong, truncated"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(runs, tmp_path, words, said):
    line = [w.format(here=tmp_path, run=runs / "voters") for w in words]
    done = subprocess.run(
        [sys.executable, "-m", "counterpoint.cli", *line], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
