"""A frozen method and engine on a task set: episodes on disk, and the measures of the summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from counterpoint.algorithms.stats import balanced_accuracy, wilson
from counterpoint.controllers import Controller, greedy
from counterpoint.dialogue import Method
from counterpoint.engines.base import Engine
from counterpoint.play import Job, failure, play, play_shared
from counterpoint.ranks import ALONE, Ranks
from counterpoint.records import Episode, Sampling, Task
from counterpoint.store import Store, read_episodes
from counterpoint.tasks.grading import grade, grade_reply

CHUNK = 512  # dialogues between two points at which an evaluation can be resumed


@dataclass(frozen=True, slots=True)
class Player:
    """Everything that is fixed while a team is measured."""

    method: Method
    agents: tuple[str, ...]
    engine: Engine
    controllers: Mapping[str, Controller]
    sampling: Sampling
    seed: int
    width: int
    by_chunk: bool = True  # whether a reply may depend, in its rounding, on what else is in the batch


class GreedyController:
    """Plays the most probable action of another controller."""

    def __init__(self, inner: Controller) -> None:
        self.inner = inner

    def probs(self, state: str) -> np.ndarray:
        probs = self.inner.probs(state)
        one_hot = np.zeros_like(probs)
        one_hot[greedy(probs)] = 1.0
        return one_hot


def frozen_controllers(controllers: Mapping[str, Controller], strategy: str) -> dict[str, Any]:
    """The average strategies, sampled or greedy."""
    averages = {name: controller.average() for name, controller in controllers.items()}
    return averages if strategy == "sampled" else {name: GreedyController(c) for name, c in averages.items()}


def unseen_decisions(episodes: Sequence[Episode], controllers: Mapping[str, Controller]) -> int:
    """How many decisions were made in states that training never saw, by the controllers' declared default (A3)."""
    seen = {name: set(controller.report()) for name, controller in controllers.items()}
    return sum(d.state not in seen[d.controller] for e in episodes for d in e.decisions)


def evaluate_set(
    player: Player,
    name: str,
    tasks: Sequence[Task],
    *,
    store: Store,
    phase: str,
    tick: Callable[[int], None] = lambda _: None,
    ranks: Ranks = ALONE,
) -> list[Episode]:
    """Play every task once and keep the episodes in PHASE/NAME.jsonl; chunks already on disk are not played again.

    Dialogues that were not answered are kept apart, in failed/PHASE/NAME.jsonl, and are not returned: they are played
    again when the evaluation is. Where no reply depends on others, everything on disk counts, not only whole chunks.
    """
    path = store.eval_file(phase, name)
    total = len(tasks) if player.by_chunk else 0
    done = ranks.told(lambda: _whole_chunks(path, total), f"what is on disk of {phase} {name}")
    tick(len(done))
    episodes = list(done)
    left = tasks[len(done) :] if player.by_chunk else _missing(tasks, done)
    for start in range(0, len(left), CHUNK):
        jobs = [Job(f"{phase}/{task.id}", task) for task in left[start : start + CHUNK]]
        play_own = partial(
            play,
            player.method,
            agents=player.agents,
            engine=player.engine,
            controllers=player.controllers,
            sampling=player.sampling,
            seed=player.seed,
            width=player.width,
        )
        answered = _answered(play_shared(ranks, jobs, play_own), store, store.failed_file(phase, name))
        for episode in store.append_episodes(path, answered):
            episodes.append(episode)
            tick(1)
    return episodes


def _missing(tasks: Sequence[Task], done: Sequence[Episode]) -> Sequence[Task]:
    found = {episode.task.id for episode in done}
    return [task for task in tasks if task.id not in found]


def _answered(played: Iterable[Episode], store: Store, failed: Path) -> Iterator[Episode]:
    """Passes on the dialogues that were answered throughout; the others go to a file of their own."""
    for episode in played:
        if failure(episode) is None:
            yield episode
        else:
            list(store.append_episodes(failed, [episode]))


def _whole_chunks(path: Path, total: int) -> list[Episode]:
    """What earlier chunks left on disk; a chunk that was cut short is dropped and played again."""
    if not path.exists():
        return []
    episodes = read_episodes(path)
    keep = len(episodes) if len(episodes) >= total else len(episodes) // CHUNK * CHUNK
    lines = path.read_bytes().splitlines(keepends=True)[:keep]
    path.write_bytes(b"".join(lines))
    return episodes[:keep]


def measure(method: Method, episodes: Sequence[Episode], *, flexible: bool = False) -> dict[str, Any]:
    """Accuracy with its interval, cost, and what changed between the first answer and the last.

    `flexible` adds the accuracy when the last number counts in solutions without the answer format, beside the strict one.

    correction = P(final right | first wrong), preservation = P(final right | first right), harm = 1 - preservation;
    None where there is no such problem. Unreadable and truncated are shares of problems and of replies. `verdicts` counts
    the reviews of right and of wrong answers by what they said, `verdict_accuracy` is the balanced accuracy of them all.
    """
    outcomes = [grade(e.task, e.answer) for e in episodes]
    final = np.array([o == "right" for o in outcomes], dtype=bool)
    first = np.array([grade(e.task, method.first_answer(e)) == "right" for e in episodes], dtype=bool)
    turns = [t for e in episodes for t in e.turns]
    n = len(episodes)
    prompt = sum(len(t.completion.prompt_ids) for t in turns)
    completion = sum(len(t.completion.token_ids) for t in turns)
    preservation = _share(final[first])
    verdicts = _verdicts(method, episodes)
    extra = {"flexible_accuracy": float(np.mean([_flexibly_right(method, e) for e in episodes]))} if flexible else {}
    return {
        **extra,
        "n": n,
        "accuracy": float(final.mean()),
        "ci95": list(wilson(int(final.sum()), n)),
        "initial_accuracy": float(first.mean()),
        "tokens_per_problem": (prompt + completion) / n,
        "prompt_tokens_per_problem": prompt / n,
        "completion_tokens_per_problem": completion / n,
        "calls_per_problem": len(turns) / n,
        "correction": _share(final[~first]),
        "preservation": preservation,
        "harm": None if preservation is None else 1 - preservation,
        "changed": float(np.mean([_changed(method, e) for e in episodes])),
        "unreadable": outcomes.count("unreadable") / n,
        "errors": outcomes.count("error") / n,
        "truncated": sum(t.completion.finish == "length" for t in turns) / max(1, len(turns)),
        "verdicts": verdicts,
        "verdict_accuracy": balanced_accuracy(tuple(verdicts["right"].values()), tuple(verdicts["wrong"].values())),
    }


def right_answers(episodes: Sequence[Episode]) -> Float[np.ndarray, " P"]:
    """1 where the final answer is right, else 0, in the order of the problems' ids: what two runs are paired by."""
    ordered = sorted(episodes, key=lambda e: e.task.id)
    return np.array([grade(e.task, e.answer) == "right" for e in ordered], dtype=np.float64)


def _verdicts(method: Method, episodes: Sequence[Episode]) -> dict[str, dict[str, int]]:
    """Reviews by whether the answer before them was right, and by what they said."""
    counts = Counter(found for e in episodes for found in method.verdicts(e))
    said = {"right": "right", "wrong": "wrong", "unreadable": None}
    return {
        name: {label: counts[truth, verdict] for label, verdict in said.items()}
        for name, truth in (("right", True), ("wrong", False))
    }


def _flexibly_right(method: Method, episode: Episode) -> bool:
    if episode.answer is not None:
        return grade(episode.task, episode.answer) == "right"
    text = method.last_solution(episode)
    return text is not None and grade_reply(episode.task, text, mode="flexible") == "right"


def _share(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _changed(method: Method, episode: Episode) -> bool:
    """Whether anything after the first turn changed the answer."""
    return method.first_answer(episode) != episode.answer
