"""Figures of what was reached: accuracy with intervals, accuracy against tokens, first to final answer, agents, cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from counterpoint.algorithms.stats import pareto_front
from counterpoint.report.collect import Collected
from counterpoint.report.compare import Difference, between, config_rows, gains
from counterpoint.report.figures import Figure, Row, Section, Table, describe_lines, line_rows, share, signed
from counterpoint.report.runs import phase_title
from counterpoint.report.tally import Cost, merge


def results_section(runs: Sequence[Collected]) -> Section:
    rows: list[Row] = []
    body = []
    for collected, phase, name, m in _measured(runs):
        team = _team(runs, collected, phase)
        low, high = m["ci95"]
        rows.append(
            {"panel": name, "y": team, "value": m["accuracy"], "low": low, "high": high, "first": m["initial_accuracy"]}
        )
        shares = [
            share(m[k]) for k in ("initial_accuracy", "correction", "preservation", "harm", "unreadable", "truncated")
        ]
        tokens, calls = f"{m['tokens_per_problem']:.0f}", f"{m['calls_per_problem']:.2f}"
        body.append(
            (
                [
                    name,
                    team,
                    str(m["n"]),
                    share(m["accuracy"]),
                    f"{low:.3f}–{high:.3f}",
                    *shares[:1],
                    tokens,
                    calls,
                    *shares[1:],
                ],
                False,
            )
        )
    head = ["task set", "team", "n", "accuracy", "95 %", "first answer", "tokens", "calls"]
    head += ["correction", "preservation", "harm", "unreadable", "truncated"]
    tables = [Table("Measures of every evaluation", head, body)] if body else []
    figures = []
    if rows:
        alt = "; ".join(f"{r['y']} on {r['panel']}: {r['value']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r in rows)
        caption = "Final answers with 95 % Wilson intervals; the ring is the accuracy of first answers."
        figures.append(Figure("accuracy", "intervals", "Accuracy", caption, alt, rows, {"x": "accuracy"}, wide=True))
    pareto = _pareto(runs)
    intro = (
        "Accuracy of the team's final answers. Correction: first wrong, final right. Preservation: first right, final "
        "right; harm is the rest."
    )
    return Section("results", "Results", intro, figures + ([pareto] if pareto else []), tables)


def _measured(runs: Sequence[Collected]) -> list[tuple[Collected, str, str, dict[str, Any]]]:
    """(run, phase, task set, measures), set by set."""
    sets = list(dict.fromkeys(name for collected in runs for name in collected.sets))
    return [
        (collected, phase, name, tally.measures())
        for name in sets
        for collected in runs
        for (phase, of), tally in collected.tallies.items()
        if of == name
    ]


def _team(runs: Sequence[Collected], collected: Collected, phase: str) -> str:
    return phase_title(phase) if len(runs) == 1 else f"{collected.run.label}, {phase_title(phase)}"


def _pareto(runs: Sequence[Collected]) -> Figure | None:
    rows: list[Row] = []
    measured = _measured(runs)
    for name in dict.fromkeys(name for _, _, name, _ in measured):
        points = [(c, phase, m) for c, phase, of, m in measured if of == name]
        cost, right = (np.array([m[k] for _, _, m in points]) for k in ("tokens_per_problem", "accuracy"))
        front = pareto_front(cost, right)
        for (collected, phase, m), best in zip(points, front, strict=True):
            low, high = m["ci95"]
            team = _team(runs, collected, phase)
            tokens = round(m["tokens_per_problem"], 1)
            row = {"panel": name, "series": team, "x": tokens, "y": m["accuracy"], "low": low, "high": high}
            rows.append({**row, "front": bool(best)})
    if not rows:
        return None
    alt = "; ".join(f"{r['series']} on {r['panel']}: {r['y']:.3f} for {r['x']:.0f} tokens" for r in rows)
    caption = (
        "Prompt and new tokens of a problem against accuracy. The line joins the teams that no other beats in both."
    )
    options = {"x": "tokens per problem", "y": "accuracy"}
    return Figure("pareto", "scatter", "Accuracy against tokens", caption, alt, rows, options, wide=True)


def answers_section(runs: Sequence[Collected]) -> Section:
    """Where first answers ended up."""
    rows: list[Row] = []
    for collected in runs:
        for (phase, name), tally in collected.tallies.items():
            panel = f"{name} · {_team(runs, collected, phase)}"
            for (first, final), n in sorted(tally.flow.items()):
                rows.append({"panel": panel, "from": first, "to": final, "n": n})
    if not rows:
        return Section("answers", "From first to final answer", "Nothing has been evaluated yet.")
    said = [
        f"{r['panel']}: {r['n']} from {r['from']} to {r['to']}"
        for r in rows
        if (r["from"] == "right") != (r["to"] == "right")
    ]
    alt = "Changed: " + ("; ".join(said[:16]) or "none")
    caption = (
        "Problems by the outcome of their first answer (left) and of the final one (right), bands as wide as many."
    )
    figure = Figure("flow", "flow", "Correction, preservation, harm", caption, alt, rows, {}, wide=True)
    return Section("answers", "From first to final answer", "What the rounds after the first answer changed.", [figure])


def agents_section(runs: Sequence[Collected]) -> Section:
    """Credit per agent: over time, and in sum."""
    rows: list[Row] = []
    body = []
    for collected in runs:
        for name in sorted({name for step in collected.earned.values() for name in step}):
            points = [(float(s), e.record()["reward"]) for s, by in collected.earned.items() if (e := by.get(name))]
            rows += line_rows(
                "" if len(runs) == 1 else collected.run.label, name, [(x, y) for x, y in points if y is not None]
            )
        for name, earned in sorted(merge(collected.earned.values()).items()):
            r = earned.record()
            cells = [*([] if len(runs) == 1 else [collected.run.label]), name, str(r["replies"]), share(r["right"])]
            cells += [
                signed(r["reward"]),
                str(r["learned"]),
                share(r["advantage"]),
                share(collected.choices.rate(name)),
                f"{r['tokens']:,}",
            ]
            body.append((cells, False))
    head = [*([] if len(runs) == 1 else ["run"]), "agent / role", "replies", "right", "mean reward"]
    head += ["learned from", "mean |advantage|", "spoke", "tokens"]
    figures = []
    if rows:
        caption = "Mean reward of each agent's candidates in each role, counterfactuals apart."
        figures = [
            Figure(
                "agents",
                "lines",
                "Reward by agent",
                caption,
                describe_lines(rows),
                rows,
                {"x": "step", "rule": 0},
                wide=True,
            )
        ]
    tables = [Table("Every agent in training, played replies and candidates", head, body)] if body else []
    return Section("agents", "Agents", "What each agent said in each role, and what that was worth.", figures, tables)


def cost_section(runs: Sequence[Collected]) -> Section:
    """What training paid for."""
    rows: list[Row] = []
    for collected in runs:
        total = Cost()
        for cost in collected.costs.values():
            total.calls.update(cost.calls)
            total.tokens.update(cost.tokens)
        for row in total.rows():
            for unit in ("tokens", "calls"):
                rows.append(
                    {
                        "panel": f"new {unit}" if unit == "tokens" else "replies",
                        "y": collected.run.label,
                        "series": row["kind"],
                        "value": row[unit],
                    }
                )
    intro = (
        "Trajectory: utterances that entered a dialogue. Candidates: their siblings. Counterfactuals: what was played to "
        "value the action not taken."
    )
    if not any(row["value"] for row in rows):
        return Section("cost", "Cost of training", "No training episodes.")
    alt = "; ".join(f"{r['y']}: {r['value']:,} {r['panel']} for {r['series']}" for r in rows)
    return Section(
        "cost",
        "Cost of training",
        intro,
        [
            Figure(
                "cost", "bars", "Where replies and tokens went", "All training steps on disk.", alt, rows, {}, wide=True
            )
        ],
    )


def comparison_section(runs: Sequence[Collected]) -> Section | None:
    """Differences with intervals: trained less untrained in each run, and each team less the first."""
    body = [([d.task_set, c.run.label, d.first, d.second, *_cells(d)], d.clear) for c in runs for d in gains(c)]
    across = between(runs) if len(runs) > 1 else []
    body += [([d.task_set, "between runs", d.first, d.second, *_cells(d)], d.clear) for d in across]
    if not body:
        return None
    head = ["task set", "run", "from", "to", "difference", "95 %", "p", "problems", "seeds"]
    intro = (
        "Paired by problem (and seed); 95 % bootstrap intervals, exact McNemar p. Marked: the interval leaves out 0."
    )
    rows = [{"panel": d.task_set, "y": d.second, "value": d.mean, "low": d.low, "high": d.high} for d in across]
    alt = "; ".join(f"{r['y']} on {r['panel']}: {r['value']:+.3f} [{r['low']:+.3f}, {r['high']:+.3f}]" for r in rows)
    title = f"Difference to {across[0].first}" if across else ""
    figures = (
        [
            Figure(
                "differences",
                "intervals",
                title,
                "In accuracy, on the same problems.",
                alt,
                list(rows),
                {"x": "difference", "rule": 0},
                wide=True,
            )
        ]
        if rows
        else []
    )
    return Section("comparison", "Differences", intro, figures, [Table("Differences in accuracy", head, body)])


def _cells(d: Difference) -> list[str]:
    return [signed(d.mean), f"{d.low:+.3f} to {d.high:+.3f}", f"{d.p:.3f}", str(d.n), str(d.seeds)]


def settings_section(runs: Sequence[Collected]) -> Section:
    """Settings side by side; those that differ first, and marked."""
    rows = config_rows(runs)
    head = ["setting", *(collected.run.label for collected in runs)]
    differing = [([key, *values], True) for key, values, differs in rows if differs]
    tables = [Table("Settings in which the runs differ", head, differing)] if differing else []
    tables.append(Table("All settings", head, [([key, *values], differs) for key, values, differs in rows]))
    return Section("settings", "Settings", "As resolved when the run was started.", [], tables)
