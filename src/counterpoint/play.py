"""The lockstep driver: many dialogues open at once, one engine call for all their requests; replay and fork.

A fork replays its parent's recorded replies up to a decision without generating, takes another action there (or plays
with an agent removed), and goes on with new replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.controllers.base import Controller, draw
from counterpoint.dialogue import NO_HISTORY, Method, Replies
from counterpoint.engines.base import Engine
from counterpoint.ranks import Ranks
from counterpoint.records import Decision, Episode, Fork, Request, Sampling, Task, Turn
from counterpoint.rng import fold, uniform


@dataclass(frozen=True, slots=True)
class Job:
    """A dialogue to play: a task under an episode id, possibly as a fork of a recorded episode."""

    id: str
    task: Task
    parent: Episode | None = None
    fork: Fork | None = None


def fork_jobs(method: Method, episode: Episode, history: Mapping[str, Any] = NO_HISTORY) -> list[Job]:
    """The forks that the method's credit asks for beside `episode`."""
    forks = method.forks(episode, history)
    return [Job(f"{episode.id}~{i}", episode.task, episode, fork) for i, fork in enumerate(forks)]


def failure(episode: Episode) -> str | None:
    """Why a dialogue was broken off, or None where every request was answered."""
    return next((t.completion.text for t in episode.turns if t.completion.finish == "error"), None)


def play(
    method: Method,
    jobs: Iterable[Job],
    *,
    agents: Sequence[str],
    engine: Engine,
    controllers: Mapping[str, Controller],
    sampling: Sampling,
    seed: int,
    n: int = 1,
    width: int = 64,
) -> Iterator[Episode]:
    """Episodes of all jobs, in the order in which they end; at most `width` dialogues are open at a time.

    `n` siblings are sampled wherever the method asks for candidates. Every draw is keyed by the episode id, so an
    episode does not depend on which others are open. A dialogue ends where a request of it was not answered: `failure`
    tells such episodes apart.
    """
    waiting = iter(jobs)
    live: list[_Dialogue] = []
    while True:
        while len(live) < width and (job := next(waiting, None)) is not None:
            live.append(_Dialogue(method, job, tuple(agents), controllers, seed, n))
        yield from (d.episode() for d in live if d.over)
        live = [d for d in live if not d.over]
        if not live:
            if (job := next(waiting, None)) is None:
                return
            live.append(_Dialogue(method, job, tuple(agents), controllers, seed, n))
            continue
        requests = [r for d in live for r in d.asked]
        seeds = [s for d in live for s in d.seeds()]
        replies = engine.generate(requests, seeds=seeds, sampling=sampling)
        at = 0
        for dialogue in live:
            count = len(dialogue.asked)
            dialogue.answer_with(replies[at : at + count])
            at += count


def play_shared(
    ranks: Ranks, jobs: Sequence[Job], play_own: Callable[[Sequence[Job]], Iterator[Episode]]
) -> Iterator[Episode]:
    """Episodes of all jobs, on every rank; each plays its share, and several give them in the order of the jobs."""
    if ranks.world == 1:
        yield from play_own(jobs)
        return
    parts = ranks.gather(list(play_own(ranks.share(jobs))), "the dialogues of the others")
    found = {episode.id: episode for part in parts for episode in part}
    yield from (found[job.id] for job in jobs)


class _Dialogue:
    """One open dialogue: a method's generator, what it has asked for, and its record so far."""

    def __init__(
        self,
        method: Method,
        job: Job,
        agents: tuple[str, ...],
        controllers: Mapping[str, Controller],
        seed: int,
        n: int,
    ) -> None:
        self.job, self.root_seed = job, seed
        self.seat = _Seat(agents, job, controllers, seed, n)
        self.turns: list[Turn] = []
        self.group = 0
        self.fresh = 0  # groups answered after the fork
        self.asked: list[Request] = []
        self.over = False
        self.result: str | None = None
        if job.fork is None or job.parent is None:
            self.generator = method.play(job.task, self.seat)
        else:
            self.generator = method.play_fork(job.task, self.seat, job.fork, job.parent)
        self._advance(None)

    def _advance(self, replies: Replies | None) -> None:
        """Run the method to its next request that has to be generated, or to its end."""
        while True:
            try:
                asked = next(self.generator) if replies is None else self.generator.send(replies)
            except StopIteration as stop:
                self.over, self.asked, self.result = True, [], stop.value
                return
            except Exception as error:
                error.add_note(f"while playing dialogue {self.job.id}")
                raise
            if not self.seat.replaying:
                self.asked = asked
                return
            replies = self._recorded(len(asked))

    def _recorded(self, count: int) -> Replies:
        assert self.job.parent is not None
        wanted = range(self.group, self.group + count)
        self.group += count
        self.seat.group = self.group
        return [[t.completion for t in self.job.parent.turns if t.group == g] for g in wanted]

    def seeds(self) -> list[int]:
        return [fold(self.root_seed, self.job.id, self.group + i) for i in range(len(self.asked))]

    def answer_with(self, replies: Replies) -> None:
        for request, siblings in zip(self.asked, replies, strict=True):
            self.turns += [Turn(self.group, j, request.agent, request.tag, c) for j, c in enumerate(siblings)]
            self.group += 1
        self.fresh += 1
        self.seat.group = self.group
        fork = self.job.fork
        cut = fork is not None and fork.stop_after is not None and self.fresh >= fork.stop_after
        if cut or any(c.finish == "error" for siblings in replies for c in siblings):
            self.generator.close()
            self.over, self.asked = True, []
            return
        self._advance(replies)

    def episode(self) -> Episode:
        decisions = tuple(self.seat.decisions)
        return Episode(self.job.id, self.job.task, tuple(self.turns), decisions, self.result, self.job.fork)


@dataclass(slots=True)
class _Seat:
    agents: tuple[str, ...]
    job: Job
    controllers: Mapping[str, Controller]
    root_seed: int
    siblings: int
    decisions: list[Decision] = field(default_factory=list)  # made here, not replayed
    decided: int = 0
    group: int = 0
    replaying: bool = False

    def __post_init__(self) -> None:
        self.replaying = self.job.fork is not None and self.job.fork.action is not None

    @property
    def n(self) -> int:
        return self.siblings if self.job.fork is None else self.job.fork.n

    def decide(self, controller: str, state: str) -> int:
        index, self.decided = self.decided, self.decided + 1
        fork, parent = self.job.fork, self.job.parent
        if self.replaying and fork is not None and parent is not None and index < fork.at:
            return parent.decisions[index].action
        probs = tuple(float(p) for p in self.controllers[controller].probs(state))
        if self.replaying and fork is not None and fork.action is not None:
            self.replaying, action = False, fork.action
        else:
            action = draw(np.array(probs), uniform(self.root_seed, self.job.id, "decide", index))
        self.decisions.append(Decision(controller, state, action, probs, self.group))
        return action

    def present(self, agent: str) -> bool:
        return self.job.fork is None or self.job.fork.remove != agent

    def seed(self, *path: str | int) -> int:
        root = self.job.id.split("~")[0]
        return fold(self.root_seed, root, *path)
