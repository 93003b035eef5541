"""The claim of counterfactual credit, measured: signal to noise of the policy gradient, per question and per generated token.

    python scripts/credit_signal.py [--simulated | --bundled] [--questions 128]

For a gradient estimate g of one question, SNR = |E g|^2 / tr Cov(g). Averaging over more questions adds it up, so what a credit
is worth is its SNR over the tokens it pays for, counterfactual replies included. It does not change with a constant scale.

Simulated: softmax policies over a few options whose effect is known; expectations over many groups. Bundled: the untrained
adapters of the bundled team; every credit is computed from the same dialogues, and |E g|^2 is estimated without bias
(|mean|^2 - tr Cov / questions); beside it stands the standard error, by the jackknife over questions.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from torch.nn import Parameter

from counterpoint.algorithms import credit as ccpo
from counterpoint.algorithms.advantage import advantages
from counterpoint.algorithms.counterfactual import leave_one_out_vote, mixed_credit, pair_solos, shapley_vote
from counterpoint.algorithms.vote import plurality_value
from counterpoint.config import load_config
from counterpoint.dialogue import Method
from counterpoint.learner import Learner, Meter
from counterpoint.packing import rows_of
from counterpoint.play import Job, fork_jobs, play
from counterpoint.progress import Progress
from counterpoint.records import Episode, Sample
from counterpoint.rng import generator
from counterpoint.store import Store
from counterpoint.train import prepare

Array = np.ndarray
G = 4  # siblings


def snr(signal: Array, noise: Array) -> float:
    """|E g|^2 / tr Cov(g) of vectors [Q, D]: the mean of `signal`, the spread of `noise`."""
    return float((signal.mean(0) ** 2).sum() / noise.var(0).sum())


# ---- simulated ---------------------------------------------------------------------------------------------------

THOUGHTS = {  # success with each of three thoughts, and alone
    "helpful thoughts differ": ((0.9, 0.5, 0.3), 0.5),
    "easy question, one thought harms": ((0.95, 0.95, 0.4), 0.95),
    "hard question, one thought helps": ((0.5, 0.05, 0.05), 0.05),
    "free-riding solver (ignores the thought)": ((0.5, 0.5, 0.5), 0.5),
    "questions of every kind mixed": (None, None),
}


def thinker(name: str, draws: int, rng: np.random.Generator) -> dict[str, tuple[float, float, int]]:
    """Credit -> (SNR of a question, |mean| of the advantage, generated replies)."""
    mix = [THOUGHTS[key] for key in list(THOUGHTS)[:3]] if THOUGHTS[name][0] is None else [THOUGHTS[name]]
    kinds = [mix[i] for i in rng.integers(len(mix), size=draws)]
    chosen = rng.integers(3, size=(draws, G))  # a uniform policy
    joint = np.array(
        [np.where(rng.random(G) < np.array(p)[k], 1.0, -1.0) for (p, _), k in zip(kinds, chosen, strict=True)]
    )
    solo = np.array([np.where(rng.random(G) < s, 1.0, -1.0) for _, s in kinds])
    history = ccpo.CreditHistory()
    for start in range(0, 2048, 64):
        history = ccpo.update_history(history, joint[start : start + 64].ravel(), solo[start : start + 64].ravel())
    grid = np.linspace(0, 1, 21)
    some = list(zip(joint[:500], solo[:500], strict=True))
    losses = [np.mean([_off_baseline(j, s, w) ** 2 for j, s in some]) for w in grid]
    weight = float(grid[int(np.argmin(losses))])
    credits: dict[str, tuple[Callable[[Array, Array], Array], int]] = {
        "shared": (lambda j, s: advantages(j, baseline="leave_one_out"), 2 * G),
        "published_v1": (
            lambda j, s: advantages(
                ccpo.published_v1(j, pair_solos(s, G), history)[0], baseline="group_mean", scale="group_std"
            ),
            3 * G,
        ),
        "published": (
            lambda j, s: advantages(ccpo.published_event(j, np.full(G, s.mean())), baseline="group_mean"),
            3 * G,
        ),
        "effective": (lambda j, s: advantages(j, baseline="blended", solo=s, weight=weight), 3 * G),
    }  # fmt: skip
    score = np.eye(3)[chosen] - 1 / 3  # d log pi / d logits
    found = {}
    for credit, (shape, replies) in credits.items():
        advantage = np.array([shape(j, s) for j, s in zip(joint, solo, strict=True)])
        g = (advantage[..., None] * score).mean(axis=1)
        found[credit] = (snr(g, g), float(np.abs(advantage).mean()), replies)
    return found


def _off_baseline(joint: Array, solo: Array, weight: float) -> Array:
    """How far outcomes are from the blended baseline of this weight."""
    return advantages(joint, baseline="blended", solo=solo, weight=weight)


TEAMS = {  # how often each of three agents is right; wrong answers are one of two
    "equals": (0.6, 0.6, 0.6),
    "one strong": (0.9, 0.4, 0.4),
    "one weak": (0.7, 0.7, 0.2),
    "hard": (0.3, 0.3, 0.3),
}


def voters(name: str, draws: int, rng: np.random.Generator) -> dict[str, tuple[float, float, int]]:
    """Credit -> (SNR of a question over all agents, |mean| of the advantage, generated replies)."""
    skill = np.array(TEAMS[name])
    labels = np.where(rng.random((draws, G, 3)) < skill, 0, 1 + rng.integers(2, size=(draws, G, 3)))
    policy = np.stack([skill, (1 - skill) / 2, (1 - skill) / 2], axis=1)  # [agents, classes]
    score = np.eye(3)[labels] - policy
    credits: dict[str, tuple[Callable[[Array, Array], Array], str]] = {
        "shared": (lambda x, r: np.full(3, plurality_value(x, r)), "leave_one_out"),
        "leave_one_out": (leave_one_out_vote, "none"),
        "shapley": (shapley_vote, "none"),
        "mixed": (lambda x, r: mixed_credit(r, leave_one_out_vote(x, r), beta=0.5), "leave_one_out"),
    }
    found = {}
    for credit, (reward, baseline) in credits.items():
        rewards = np.array([[reward(_classes(x), x == 0) for x in group] for group in labels])  # [Q, G, agents]
        advantage = np.stack(
            [[advantages(group[:, k], baseline=baseline) for k in range(3)] for group in rewards]  # type: ignore[arg-type]
        ).transpose(0, 2, 1)
        g = (advantage[..., None] * score).mean(axis=1).reshape(draws, -1)
        found[credit] = (snr(g, g), float(np.abs(advantage).mean()), 3 * G)
    return found


def _classes(x: Array) -> Array:
    return np.unique(x, return_inverse=True)[1]


def simulated(draws: int) -> None:
    for title, cases, run in (("thinker of a dyad", THOUGHTS, thinker), ("three voters", TEAMS, voters)):
        rows = {name: run(name, draws, generator(0, "signal", title, name)) for name in cases}
        names = list(next(iter(rows.values())))
        print(
            f"\n{title}: SNR of 1,000 generated replies\n\n| case | {' | '.join(names)} |\n|---|" + "---|" * len(names)
        )
        for case, found in rows.items():
            print(f"| {case} | " + " | ".join(f"{1000 * found[n][0] / found[n][2]:.2f}" for n in names) + " |")


# ---- the bundled model -------------------------------------------------------------------------------------------


def bundled(questions: int) -> None:
    dyad = ("shared", "published_v1", "published_event", "effective")
    measure("think_solve", 2, [{"preset": p} for p in dyad], dyad, "thinker", questions)
    vote = ("shared", "leave_one_out", "shapley", "mixed")
    shapes = [
        {"preset": "shared"},
        {"preset": "mixed", "beta": 1.0, "baseline": "none"},
        {"preset": "mixed", "beta": 1.0, "baseline": "none", "delta": "shapley"},
        {"preset": "mixed", "beta": 0.5},
    ]
    measure("vote", 3, shapes, vote, "solver", questions)


def measure(
    name: str, agents: int, shapes: Sequence[Mapping[str, object]], names: Sequence[str], role: str, questions: int
) -> None:
    """One batch of dialogues, every credit on it."""
    config = load_config(
        None, [f"agents={agents}", f"method={{name: {name}}}", f"dialogues={2 * questions}", "tasks.eval=[]"]
    )
    with tempfile.TemporaryDirectory() as folder:
        run = prepare(config, Store(Path(folder)), Progress(quiet=True))

    def played(jobs: list[Job]) -> list[Episode]:
        n = config.method.siblings
        common = {"agents": config.names, "engine": run.team.engine, "controllers": {}, "seed": 0, "width": 512}
        return sorted(
            play(config.method, jobs, sampling=config.sampling.record(), n=n, **common),
            key=lambda e: e.id,  # type: ignore[arg-type]
        )

    episodes = played([Job(f"train/1/{t.id}", t) for t in run.train_tasks[: 2 * questions]])
    forks = played([job for e in episodes for job in fork_jobs(config.method, e)])
    beside = {e.id: [f for f in forks if f.fork is not None and f.fork.parent == e.id] for e in episodes}
    own = sum(len(t.completion.token_ids) for e in episodes for t in e.turns) / len(episodes)
    extra = sum(len(t.completion.token_ids) for f in forks for t in f.turns) / len(episodes)
    vectors = _Gradients(run.team.learner)
    print(f"\n{name}, {role}: {questions} questions, {own:.0f} tokens each, {extra:.0f} of counterfactuals\n")
    print("| credit | SNR of a question | SNR of 1,000 generated tokens |\n|---|---|---|")
    for label, shape in zip(names, shapes, strict=True):
        method = config.method.model_copy(update=dict(shape))
        paid = own + (extra if label != "shared" else 0.0)
        g = _question_gradients(method, episodes, beside, vectors, role, with_forks=label != "shared")
        value, error = _unbiased(g)
        scale = 1000 / paid
        print(f"| {label} | {value:.4f} ± {error:.4f} | {scale * value:.4f} ± {scale * error:.4f} |")


def _question_gradients(
    method: Method,
    episodes: Sequence[Episode],
    beside: Mapping[str, list[Episode]],
    vectors: _Gradients,
    role: str,
    *,
    with_forks: bool,
) -> Array:
    """[questions, D] of the second half of the dialogues; the first half makes the history."""
    half = len(episodes) // 2
    forks = beside if with_forks else {}
    streams: dict[str, list[float]] = {}
    for e in episodes[:half]:
        for key, values in method.credit(e, forks.get(e.id, []), {}).streams.items():
            streams.setdefault(key, []).extend(values)
    history = method.remember({}, streams)
    rows = []
    for e in episodes[half:]:
        samples = [s for s in method.credit(e, forks.get(e.id, []), history).samples if s.agent.endswith(f"/{role}")]
        rows.append(vectors.of(samples))
    return np.stack(rows)


def _unbiased(g: Array) -> tuple[float, float]:
    """(|mean|^2 - tr Cov / Q) / tr Cov of vectors [Q, D], and its standard error by the jackknife."""
    gram = g.astype(np.float64) @ g.T.astype(np.float64)
    count, whole, trace, rows, own = len(g), gram.sum(), np.trace(gram), gram.sum(axis=1), np.diag(gram)

    def ratio(n: int, total: Array, squares: Array) -> Array:
        mean = total / n**2
        spread = (squares - n * mean) / (n - 1)
        return np.asarray((mean - spread / n) / spread)

    without = ratio(count - 1, whole - 2 * rows + own, trace - own)
    error = float(np.sqrt((count - 1) * without.var()))
    return float(ratio(count, whole, trace)), error


class _Gradients:
    """The gradient of a sample's log-probability, for an advantage of 1, kept: credits differ in nothing else."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.agents = sorted(learner.parameters)
        self.kept: dict[tuple[str, tuple[int, ...], tuple[int, ...]], Array] = {}

    def of(self, samples: Sequence[Sample]) -> Array:
        """Sum of advantage x gradient over a question's samples, every agent in its own block."""
        size = sum(p.numel() for p in self._up(self.agents[0]))
        total = np.zeros((len(self.agents), size), dtype=np.float32)
        for sample in samples:
            total[self.agents.index(sample.agent)] += sample.advantage * self._one(sample)
        return total.ravel()

    def _up(self, agent: str) -> list[Parameter]:
        """The B of an untrained adapter: the gradient of its A is zero."""
        return [p for name, p in self.learner.parameters[agent].items() if name.endswith("B")]

    def _one(self, sample: Sample) -> Array:
        key = (sample.agent, sample.prompt_ids, sample.token_ids)
        if key not in self.kept:
            for parameter in self.learner.parameters[sample.agent].values():
                parameter.requires_grad_(True)
                parameter.grad = None
            self.learner.accumulate(rows_of([replace(sample, advantage=1.0)]), Meter())
            grads = [p.grad for p in self._up(sample.agent)]
            self.kept[key] = np.concatenate([g.flatten().numpy().copy() for g in grads if g is not None])
        return self.kept[key]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--bundled", action="store_true")
    parser.add_argument("--questions", type=int, default=128)
    parser.add_argument("--draws", type=int, default=20_000)
    args = parser.parse_args()
    both = args.simulated == args.bundled
    if both or args.simulated:
        simulated(args.draws)
    if both or args.bundled:
        bundled(args.questions)


if __name__ == "__main__":
    main()
