"""What the report computes again from records is what training computed."""

import json

import numpy as np
import pytest

from counterpoint.report.collect import collect
from counterpoint.report.pack import Packer
from counterpoint.report.readings import read_dialogue
from counterpoint.report.replay import Replay
from counterpoint.report.runs import open_run
from counterpoint.report.tally import merge

NAMES = ("immediate", "outcome", "thinkers", "voters")


def collected(root):
    [found] = collect([open_run(root)], Packer(), limit=10_000)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_controllers_credited_again_equal_the_checkpoint(runs, name):
    replay = Replay(open_run(runs / name))
    steps = list(replay.steps())
    assert [s.number for s in steps] == list(range(1, replay.run.done + 1))
    assert replay.agrees() is True


def test_another_record_is_noticed(copy):
    root = copy("immediate")
    path = root / "train" / "000003.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[1:]))
    assert collected(root).agrees is False


@pytest.mark.parametrize("name", NAMES)
def test_measures_equal_the_summary(runs, name):
    summary = json.loads((runs / name / "summary.json").read_text())
    found = collected(runs / name)
    for phase, key in (("untrained", "untrained"), ("eval", "eval"), ("eval-greedy", "eval_greedy")):
        for task_set, measures in summary[key].items():
            again = found.tallies[phase, task_set].measures()
            assert again.pop("ci95") == pytest.approx(measures["ci95"])
            assert again == pytest.approx({k: measures[k] for k in again})


def test_cost_equals_the_summary(runs):
    summary = json.loads((runs / "immediate" / "summary.json").read_text())
    costs = collected(runs / "immediate").costs.values()
    for kind, written in (("trajectory",) * 2, ("candidates",) * 2, ("counterfactuals", "counterfactual")):
        assert sum(c.tokens[kind] for c in costs) == summary["cost"]["train"]["tokens"][written]


def test_rewards_equal_the_metrics(runs):
    """Mean over a step's candidates = the metric, which is a mean over groups of equal size."""
    found = collected(runs / "immediate")
    for line in found.run.metrics:
        earned = found.earned[line["step"]]
        for role in ("proposer", "reviewer"):
            own = [e for name, e in earned.items() if name.endswith(role)]
            mean = sum(e.reward for e in own) / sum(e.rewarded for e in own)
            assert mean == pytest.approx(line[f"reward/{role}"])


def test_advantages_reach_their_replies(runs):
    run = open_run(runs / "immediate")
    step = next(iter(Replay(run).steps()))
    groups = [move.replies for d in step.dialogues for move in d.moves if move.replies]
    told = [g for g in groups if g[0].advantage is not None]
    assert told
    for group in told:
        rewards = np.array([r.reward for r in group])
        assert [r.advantage for r in group] == pytest.approx((rewards - rewards.mean()) / rewards.std())
    assert all(np.std([r.reward for r in g]) < 0.05 for g in groups if g[0].advantage is None)


def test_every_decision_is_shown_once_with_both_values_and_a_branch_where_it_was_not_taken(runs):
    for name in ("immediate", "outcome"):
        for step in Replay(open_run(runs / name)).steps():
            for d in step.dialogues:
                decided = [m for m in d.moves if m.decision is not None]
                assert [m.decision for m in decided] == list(d.episode.decisions)
                assert all(m.values is not None and len(m.values) == 2 for m in decided)
                assert all((m.branch is not None) == (name == "outcome" or not m.replies) for m in decided)
                assert sum(len(m.replies) for m in d.moves) == len(d.episode.turns)


def test_a_thinker_left_out_is_a_counterfactual_beside_the_dialogue(runs):
    step = next(iter(Replay(open_run(runs / "thinkers")).steps()))
    branches = [b for d in step.dialogues for b in d.others]
    assert branches
    assert {b.title for b in branches} == {"without agent0/thinker"}
    assert all(b.outcome in ("right", "wrong", "unreadable") for b in branches)


def test_verdicts_are_right_when_they_agree_with_the_pending_answer(runs):
    run = open_run(runs / "immediate")
    checked = 0
    for episode in run.episodes(run.phases()["eval"]["mini-gsm"]):
        pending = None
        for move in read_dialogue(run.method, episode).moves:
            if move.role == "proposer" and move.replies:
                pending = move.replies[0].right
            elif move.replies and move.replies[0].said:
                assert move.replies[0].right == ((move.replies[0].said == "right") == pending)
                checked += 1
    assert checked > 20


def test_agents_earn_what_their_replies_earn(runs):
    found = collected(runs / "immediate")
    total = merge(found.earned.values())
    assert set(total) == {f"agent{i}/{role}" for i in (0, 1) for role in ("proposer", "reviewer")}
    assert all(0 <= found.choices.rate(name) <= 1 for name in total)
