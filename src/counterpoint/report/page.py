"""The page: one HTML file with everything inside, that neither asks a network for anything nor runs what it shows."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import counterpoint
from counterpoint.report.collect import Collected
from counterpoint.report.compare import gains
from counterpoint.report.curves import controllers_section, training_section
from counterpoint.report.figures import Section, share, signed
from counterpoint.report.pack import Packer
from counterpoint.report.results import (
    agents_section,
    answers_section,
    comparison_section,
    cost_section,
    results_section,
    settings_section,
)
from counterpoint.report.runs import phase_title, set_name

SCRIPTS = ("vendor/d3.min.js", "vendor/plot.min.js", "plots.js", "browser.js")
STYLE = "report.css"


def render(runs: Sequence[Collected], packer: Packer) -> str:
    """The whole report as HTML."""
    sections = _sections(runs)
    scripts = [_asset(name) for name in SCRIPTS]
    data = {
        "figures": [figure.record() for section in sections for figure in section.figures],
        "runs": [collected.run.label for collected in runs],
        "phases": {phase: phase_title(phase) for phase in _phases(runs)},
    }
    environment = Environment(
        loader=PackageLoader("counterpoint.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    return environment.get_template("report.html").render(
        title=" and ".join(collected.run.label for collected in runs[:3]),
        version=counterpoint.__version__,
        policy=_policy(scripts),
        style=Markup(_asset(STYLE)),
        scripts=[Markup(script) for script in scripts],
        sections=sections,
        cards=[_card(collected) for collected in runs],
        notes=[(c.run.label, note) for c in runs for note in dict.fromkeys(c.run.notes)],
        data=data,
        index=packer.squeezed_index(),
        blocks=packer.blocks,
        dialogues=len(packer.index),
        several=len(runs) > 1,
    )


def _sections(runs: Sequence[Collected]) -> list[Section]:
    made = [
        results_section(runs),
        comparison_section(runs),
        answers_section(runs),
        training_section(runs),
        controllers_section(runs),
        agents_section(runs),
        cost_section(runs),
        settings_section(runs),
    ]
    return [section for section in made if section is not None and (section.figures or section.tables)]


def _phases(runs: Sequence[Collected]) -> list[str]:
    return list(dict.fromkeys([phase for collected in runs for phase, _ in collected.tallies] + ["train"]))


def _card(collected: Collected) -> dict[str, Any]:
    """The headline of one run."""
    run, config = collected.run, collected.run.config
    results = []
    gained = {d.task_set: d for d in gains(collected)}
    for name in collected.sets:
        after = collected.tallies.get(("eval", name)) or collected.tallies.get(("untrained", name))
        if after is None:
            continue
        m, d = after.measures(), gained.get(name)
        results.append(
            {
                "set": name,
                "accuracy": share(m["accuracy"]),
                "interval": f"{m['ci95'][0]:.3f} to {m['ci95'][1]:.3f}",
                "gain": "" if d is None else f"{signed(d.mean)} [{d.low:+.3f}, {d.high:+.3f}] over untrained",
                "sure": "" if d is None or not d.clear else "up" if d.mean > 0 else "down",
                "cost": f"{m['tokens_per_problem']:.0f} tokens, {m['calls_per_problem']:.2f} calls a problem",
            }
        )
    model = config.get("model") or {}
    facts = {
        "method": str(config["method"].get("name", "")),
        "model": str(model.get("name", model)) if isinstance(model, dict) else str(model),
        "agents": ", ".join(run.agents),
        "trained on": set_name(config["tasks"]["train"]),
        "seed": str(config.get("seed", "")),
    }
    return {"label": run.label, "status": run.status, "unfinished": not run.summary, "facts": facts, "results": results}


def _asset(name: str) -> str:
    text = (files("counterpoint.report") / "static" / name).read_text(encoding="utf-8")
    assert "</script" not in text.lower()
    return text


def _policy(scripts: Sequence[str]) -> str:
    """No network, and no script but ours: a reply that became markup by a fault of ours would still do nothing."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{h}'" for h in hashes)
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"
