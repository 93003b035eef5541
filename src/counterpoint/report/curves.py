"""Figures over training steps: rewards, spread, ratio, clipping, silence, length; controllers and their regret."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from counterpoint.report.collect import Collected
from counterpoint.report.figures import Figure, Row, Section, Table, describe_lines, every, line_rows, share, signed

CURVES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    # id, prefixes of metrics, title, caption, options
    (
        "accuracy",
        "accuracy initial_accuracy",
        "Accuracy in training",
        "Final and first answers of each step's dialogues.",
        {"share": True},
    ),
    ("reward", "reward/", "Reward", "Mean reward of each role's candidates.", {"rule": 0}),
    (
        "spread",
        "reward_std/ advantage_std/",
        "Spread in a group",
        "Standard deviation of rewards inside a group: what advantages are made of.",
        {},
    ),
    (
        "zero",
        "zero_signal/",
        "Groups without a signal",
        "Share of groups whose rewards do not differ: nothing is learned from them.",
        {"share": True},
    ),
    (
        "ratio",
        "learn/ratio_mean/ learn/ratio_max/",
        "Importance ratio",
        "Mean and largest ratio of new to old probability in the loss; 1 is on policy.",
        {"rule": 1},
    ),
    (
        "clip",
        "learn/clip_fraction/",
        "Clipped",
        "Share of sequences or tokens whose ratio was clipped.",
        {"share": True},
    ),
    ("skip", "speak/", "Skip rate", "Share of decisions to keep silent.", {"share": True, "one_minus": True}),
    ("truncated", "truncated/", "Truncated replies", "Share of replies that hit the length limit.", {"share": True}),
    (
        "calls",
        "calls_per_problem",
        "Calls per problem",
        "Replies asked for in a training dialogue, candidates included.",
        {},
    ),
    ("gradient", "learn/grad_norm/", "Gradient norm", "Before clipping, mean over the step's minibatches.", {}),
    ("kl", "learn/approx_kl/", "Approximate KL", "Of the new policy from the one that sampled.", {}),
)


def training_section(runs: Sequence[Collected]) -> Section:
    figures = [_curve(runs, *curve) for curve in CURVES]
    figures += [_speed(runs), _others(runs)]
    intro = "One point a step. With several runs, each has its colour and each role its own panel."
    return Section("training", "Training", intro, [f for f in figures if f is not None])


def _curve(
    runs: Sequence[Collected], name: str, prefixes: str, title: str, caption: str, options: dict[str, Any]
) -> Figure | None:
    rows: list[Row] = []
    flip = options.get("one_minus", False)
    for collected in runs:
        metrics = collected.run.metrics
        for key in sorted({key for line in metrics for key in line if key.startswith(tuple(prefixes.split()))}):
            points = [
                (line["step"], 1 - line[key] if flip else line[key]) for line in metrics if _number(line.get(key))
            ]
            if points:
                label = _metric_label(key)
                panel, series = ("", label) if len(runs) == 1 else (label, collected.run.label)
                rows += line_rows(panel, series, points)
    if not rows:
        return None
    kept = {k: v for k, v in options.items() if k != "one_minus"} | {"x": "step"}
    return Figure(f"curve-{name}", "lines", title, caption, describe_lines(rows), rows, kept)


def _others(runs: Sequence[Collected]) -> Figure | None:
    """What else the method measures, each in a panel of its own."""
    known = tuple(prefix for _, prefixes, *_ in CURVES for prefix in prefixes.split())
    shown = ("step", "learn/", "correction", "preservation", "unreadable", "truncated", *known)
    rows: list[Row] = []
    for collected in runs:
        metrics = collected.run.metrics
        for key in sorted({key for line in metrics for key in line if not key.startswith(shown)})[:24]:
            points = [(line["step"], line[key]) for line in metrics if _number(line.get(key))]
            rows += line_rows(key, "" if len(runs) == 1 else collected.run.label, points)
    caption = "What the method observes beside its rewards, under the names in metrics.jsonl."
    if not rows:
        return None
    return Figure(
        "curve-others", "lines", "Of the method", caption, describe_lines(rows), rows, {"x": "step"}, wide=True
    )


def _metric_label(key: str) -> str:
    """reward/proposer -> proposer; learn/ratio_max/reviewer -> reviewer, largest; initial_accuracy -> first answer."""
    plain = {"accuracy": "final answer", "initial_accuracy": "first answer", "calls_per_problem": "calls"}
    last = key.rsplit("/", 1)[-1]
    return plain.get(key) or (f"{last}, largest" if "_max/" in key else last)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and value == value and abs(value) != float("inf")


def _speed(runs: Sequence[Collected]) -> Figure | None:
    rows: list[Row] = []
    for collected in runs:
        timings = collected.run.timings
        for phase in sorted({k for t in timings for k in t if k not in ("step", "tokens")}):
            points = [(t["step"], t[phase]) for t in timings if _number(t.get(phase))]
            if max((y for _, y in points), default=0) > 0.05:
                panel, series = ("", phase) if len(runs) == 1 else (phase, collected.run.label)
                rows += line_rows(panel, series, points)
    caption = "Seconds of a step spent playing, on counterfactuals, learning."
    return Figure("curve-time", "lines", "Time", caption, describe_lines(rows), rows, {"x": "step"}) if rows else None


def controllers_section(runs: Sequence[Collected]) -> Section:
    """Heat map over time, regret against its bound, and the last state of every matcher."""
    figures = [f(runs) for f in (_heat, _regret)]
    intro = (
        "A controller decides in each state whether its agent speaks. All of this is credited again from the recorded "
        "dialogues, so it also checks the run."
    )
    tables = [table for c in runs if c.controllers for table in [_matchers(c)]]
    agreed = {True: "equal", False: "NOT equal", None: ""}
    for collected in runs:
        if agreed[collected.agrees]:
            intro += f" {collected.run.label}: {agreed[collected.agrees]} to the newest checkpoint."
    return Section("controllers", "Controllers", intro, [f for f in figures if f is not None], tables)


def _panel(runs: Sequence[Collected], collected: Collected, name: str) -> str:
    return name if len(runs) == 1 else f"{collected.run.label} · {name}"


def _heat(runs: Sequence[Collected]) -> Figure | None:
    rows: list[Row] = []
    for collected in runs:
        for step in every(list(collected.controllers), 60):
            for name, states in collected.controllers[step].items():
                for state, report in states.items():
                    p = round(1 - float(report["strategy"][0]), 4)
                    visits = int(report.get("visits", 0))
                    rows.append(
                        {"panel": _panel(runs, collected, name), "y": state, "x": step, "p": p, "visits": visits}
                    )
    if not rows:
        return None
    last = [r for r in rows if r["x"] == max(row["x"] for row in rows)]
    alt = "Probability of speaking after the last step: " + "; ".join(
        f"{r['panel']} in {r['y']} {r['p']:.2f} ({r['visits']} visits)" for r in last[:12]
    )
    caption = "Probability of speaking by state and step; a bar's height grows with the state's visits so far."
    return Figure("heat", "heat", "When they speak", caption, alt, rows, {"x": "step"}, wide=True)


def _regret(runs: Sequence[Collected]) -> Figure | None:
    rows: list[Row] = []
    for collected in runs:
        steps = every(list(collected.controllers))
        names = sorted({name for step in steps for name in collected.controllers[step]})
        for name in names:
            for series, key in (("average regret", "average_regret"), ("bound", "bound")):
                points = [
                    (float(s), y)
                    for s in steps
                    if (y := _mean(collected.controllers[s].get(name, {}), key)) is not None
                ]
                rows += line_rows(_panel(runs, collected, name), series, points)
    if not rows:
        return None
    caption = (
        "Average regret over all states, weighted by visits, and its worst-case bound, which falls as 1/sqrt(updates)."
    )
    options = {"x": "step", "rule": 0, "dashed": "bound"}
    return Figure(
        "regret", "lines", "Regret against its bound", caption, describe_lines(rows), rows, options, wide=True
    )


def _mean(states: dict[str, dict[str, Any]], key: str) -> float | None:
    """Over states, weighted by visits; None for controllers that know no regret."""
    known = [(s["visits"], s[key]) for s in states.values() if key in s]
    total = sum(visits for visits, _ in known)
    return sum(visits * value for visits, value in known) / total if total else None


def _matchers(collected: Collected) -> Table:
    last = collected.controllers[max(collected.controllers)]
    body = []
    for name, states in last.items():
        for state, r in states.items():
            cells = [name, state, str(r.get("visits", "")), share(1 - r["strategy"][0])]
            average = r.get("average_strategy")
            cells += ["–" if average is None else share(1 - average[0])]
            cells += [
                _optional(r, "average_regret", signed),
                _optional(r, "bound", share),
                _optional(r, "gauge", share),
            ]
            body.append((cells, r.get("gauge", 0) > 1))
    head = ["controller", "state", "visits", "p(speak)", "average p(speak)", "average regret", "bound", "gauge"]
    caption = (
        f"{collected.run.label}: every state after step {max(collected.controllers)}; a gauge above 1 would be a fault"
    )
    return Table(caption, head, body)


def _optional(report: dict[str, Any], key: str, form: Callable[[float | None], str]) -> str:
    return form(report.get(key))
