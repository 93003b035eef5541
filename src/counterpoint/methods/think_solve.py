"""CCPO's dyad: a thinker plans, a solver answers, and each is credited against the solver's answers without the plan.

Papers: Counterfactual Credit Policy Optimization (arXiv 2603.21563), and SEPO for the ratings (`credit: sepo`).
Differs from the paper:
- `effective`, the default credit, is ours: outcome less a blend of the other siblings' mean and the solo mean, over the
  run's standard deviation; algorithms/credit.py says what the published credits really do, and each is here by name
- a thought loses every boxed span and "Final answer" line on its way to the solver       (its last boxed span)
- whatever is cut off counts as wrong, in every preset                                    (0 on a centred scale)
- a rating that cannot be read is masked and counted                                      (taken for half and half)
- solo outcomes of a question are used again while the solver is frozen                   (sampled again)
- the roles' alternation starts with a whole block                                        (one step short)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import AliasChoices, Field, model_validator

from counterpoint import prompts
from counterpoint.algorithms import credit as ccpo
from counterpoint.algorithms import role_history, sepo
from counterpoint.algorithms.advantage import Baseline, Scale, Squash, advantages, leave_one_out
from counterpoint.algorithms.counterfactual import pair_solos
from counterpoint.algorithms.history import PublishedMoments
from counterpoint.dialogue import NO_HISTORY, Credit, Method, Play, Seat, read_answer, sibling_groups, training_step
from counterpoint.records import Completion, Episode, Fork, Request, Task, Turn
from counterpoint.tasks.grading import grade
from counterpoint.tasks.leak import states_answer, without_answer
from counterpoint.tasks.ratings import first_share

Role = Literal["thinker", "solver"]
ROLES: tuple[Role, ...] = get_args(Role)
Preset = Literal["effective", "published_v1", "published_event", "published_continuous", "shared", "sepo"]
SHAPES: dict[Preset, tuple[Baseline, Scale, Squash]] = {
    "effective": ("blended", "history_std", "none"),
    "published_v1": ("group_mean", "group_std", "none"),  # its tanh is in the rewards
    "published_event": ("group_mean", "none", "none"),
    "published_continuous": ("group_mean", "none", "none"),
    "shared": ("group_mean", "group_std", "none"),
    "sepo": ("group_mean", "none", "none"),
}
RATE = "rate"  # the kind of the fork that asks for ratings


class ThinkSolve(Method):
    """Settings of think_solve."""

    name: Literal["think_solve"] = "think_solve"
    roles: ClassVar[tuple[str, ...]] = ROLES

    thoughts: int = Field(default=4, ge=2)
    """Thoughts sampled for a question in training: one sibling group."""
    answers: int = Field(default=1, ge=1)
    """Solver samples for each thought in training; several estimate E[outcome | thought]."""
    solos: int | None = Field(default=None, ge=0)
    """Solver samples of the bare question; when not given as many as thoughts, or none where the credit needs none."""
    preset: Preset = Field(default="effective", validation_alias=AliasChoices("credit", "preset"))
    """How outcomes become advantages; may be written `credit`."""
    baseline: Baseline | None = None
    """Replaces the preset's baseline."""
    scale: Scale | None = None
    """Replaces the preset's scale."""
    squash: Squash | None = None
    """Replaces the preset's squash."""
    bonus: float = Field(default=0.2, ge=0)
    """Weight of the counterfactual (published_event, published_continuous) or of the ratings (sepo)."""
    alpha: float = Field(default=1.0, gt=0)
    """published_v1: factor inside the thinker's tanh."""
    eta: float = Field(default=1.0, ge=0)
    """published_v1: steepness of the solver's gate."""
    rating_self: float = Field(default=0.3, ge=0, le=1)
    """sepo: weight of a role's rating of itself; the rest is the other's."""
    rating_centred: bool = True
    """sepo: the bonus is a share less the group's mean share, not less one half."""
    train: str = Field(default="both", pattern=r"^(both|alternate\([1-9][0-9]*\))$")
    """both: every role learns at every step; alternate(K): K steps the thinker, K steps the solver, and so on."""
    train_roles: tuple[Role, ...] = ROLES
    """Roles whose adapters learn."""
    train_solo: bool = False
    """Whether solo answers are learned from too: they are paid for."""
    cache_solos: bool = True
    """Whether a question's solo outcomes are used again while the solver is frozen."""
    thought_chars: int = Field(default=4000, ge=0)
    """Characters of a thought that reach the solver, from its head; 0 for all."""
    leak_penalty: float = Field(default=0.0, ge=0)
    """Taken off the thinker's reward when its thought states the gold answer."""
    decay: float = Field(default=0.99, gt=0, lt=1)
    """How much of the run's history one step keeps."""
    history_per_set: bool = False
    """Whether each task set has a history of its own."""
    min_std: float = Field(default=0.05, ge=0)
    """Under scale group_std, groups whose rewards spread less than this teach nothing."""

    @model_validator(mode="after")
    def _sound(self) -> ThinkSolve:
        if self.answers > 1 and self.preset not in ("effective", "shared"):
            raise ValueError(f"credit {self.preset!r} is defined for answers=1, got answers={self.answers}")
        if self.solo_count == 0 and self._needs_solos:
            raise ValueError(f"credit {self.preset!r} compares with solo answers: set solos above 0")
        if self.train != "both" and set(self.train_roles) != set(ROLES):
            raise ValueError(f"train={self.train!r} needs both train_roles, got {list(self.train_roles)}")
        return self

    @property
    def shape(self) -> tuple[Baseline, Scale, Squash]:
        """The switches in force."""
        baseline, scale, squash = SHAPES[self.preset]
        return self.baseline or baseline, self.scale or scale, self.squash or squash

    @property
    def _needs_solos(self) -> bool:
        return self.preset.startswith("published") or self.shape[0] in ("solo_mean", "blended")

    @property
    def solo_count(self) -> int:
        return self.solos if self.solos is not None else self.thoughts if self._needs_solos or self.train_solo else 0

    @property
    def siblings(self) -> int:
        return self.thoughts

    @property
    def learns_from_forks(self) -> bool:
        return self.train_solo

    def learning(self, step: int) -> tuple[Role, ...]:
        """The roles that learn at a step, counted from 1."""
        if self.train == "both" or step < 1:
            return self.train_roles
        block = (step - 1) // int(self.train.removeprefix("alternate(").removesuffix(")"))
        return (ROLES[block % len(ROLES)],)

    # ---- play ----------------------------------------------------------------------------------------------------

    def play(self, task: Task, seat: Seat) -> Play:
        thinker, solver = f"{seat.agents[0]}/thinker", f"{seat.agents[:2][-1]}/solver"
        if not seat.present(thinker):
            [alone] = yield [Request(solver, prompts.solve(task), "solo", seat.n)]
            return read_answer(task, alone[0])
        [thoughts] = yield [Request(thinker, prompts.think(task), "think", seat.n)]
        whole = [t for t in thoughts if t.finish == "stop"]
        if not whole:
            return None
        answers = self.answers if seat.n > 1 else 1
        replies = yield [
            Request(solver, prompts.solve_with_thought(task, self._handed(t)), "solve", answers) for t in whole
        ]
        return read_answer(task, replies[0][0]) if thoughts[0].finish == "stop" else None

    def _handed(self, thought: Completion) -> str:
        text = without_answer(thought.text)
        return text[: self.thought_chars] if self.thought_chars else text

    def forks(self, episode: Episode, history: Mapping[str, Any] = NO_HISTORY) -> list[Fork]:
        """Solo answers, unless they are known; ratings, which need the outcome."""
        made = []
        if self.solo_count and self._cached(episode, history) is None:
            made.append(Fork(episode.id, 0, remove=episode.turns[0].agent, n=self.solo_count))
        if self.preset == "sepo" and any(t.tag == "solve" for t in episode.turns):
            made.append(Fork(episode.id, 0, kind=RATE))
        return made

    def _cached(self, episode: Episode, history: Mapping[str, Any]) -> list[float] | None:
        if self.train_solo and "solver" in self.learning(training_step(episode)):
            return None
        known: list[float] | None = history.get("solos", {}).get(episode.task.id)
        return known

    def play_fork(self, task: Task, seat: Seat, fork: Fork, parent: Episode) -> Play:
        return self._rate(task, parent) if fork.kind == RATE else self.play(task, seat)

    def _rate(self, task: Task, parent: Episode) -> Play:
        """Both roles rate every answered thought, knowing the outcome."""
        asked, groups = [], sibling_groups(parent)
        whole = [t for t in groups[0] if t.completion.finish == "stop"]
        for thought, group in zip(whole, sorted(groups)[1:], strict=True):
            turn = groups[group][0]
            right = grade(task, read_answer(task, turn.completion)) == "right"
            messages = prompts.rate_split(task, self._handed(thought.completion), turn.completion.text, right)
            asked += [Request(thought.agent, messages, RATE), Request(turn.agent, messages, RATE)]
        yield asked
        return None

    def first_answer(self, episode: Episode) -> str | None:
        """The solver's first reply is the team's first answer."""
        return episode.answer

    def last_solution(self, episode: Episode) -> str | None:
        """The solver's; none where the thought was cut off."""
        groups = sibling_groups(episode)
        return groups[1][0].completion.text if groups[0][0].completion.finish == "stop" else None

    # ---- credit --------------------------------------------------------------------------------------------------

    def credit(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> Credit:
        credit, seen = Credit(), self._seen(episode, forks, history)
        scope = episode.task.id.partition("/")[0] if self.history_per_set else ""
        learning = self.learning(training_step(episode))
        self._diagnose(credit, seen)
        for group in self._groups(credit, scope, seen, history):
            own = self._advantages(f"{scope}|{group.role}", group.rewards, seen.solo, history)
            credit.observe(f"reward/{group.role}", group.rewards.mean())
            credit.observe(f"zero_signal/{group.role}", not own.any())
            credit.remember(f"advantage|{group.role}", own)
            credit.remember(f"plain|{group.role}", group.outcomes - group.outcomes.mean())
            if len(own) > 1 and len(seen.solo):
                stem = f"run|{scope}|{group.role}|"
                credit.remember(f"{stem}rewards", group.rewards)
                credit.remember(f"{stem}left_out", leave_one_out(group.rewards))
                credit.remember(f"{stem}solo", np.full(len(own), seen.solo.mean()))
            if group.role in learning and own.any():
                credit.learn(group.turns, own)
        if self.train_solo and "solver" in learning and len(seen.solo_turns) > 1:
            scale: Scale = "none" if self.shape[1] == "none" else "group_std"
            credit.learn(seen.solo_turns, advantages(seen.solo, baseline="leave_one_out", scale=scale))
        if self.cache_solos and self.solo_count:
            credit.remember("solver_learned", ["solver" in learning])
            if seen.solo_turns:
                credit.remember(f"solos|{episode.task.id}", seen.solo)
        return credit

    def _seen(self, episode: Episode, forks: Sequence[Episode], history: Mapping[str, Any]) -> _Seen:
        """A recorded dialogue and its forks as outcomes."""
        task, groups = episode.task, sibling_groups(episode)
        asked = iter(sorted(groups)[1:])
        replies = [groups[next(asked)] if t.completion.finish == "stop" else [] for t in groups[0]]
        joint = np.array([_outcomes(task, row) if row else [-1.0] * self.answers for row in replies], dtype=np.float64)
        seen = _Seen(groups[0], replies, joint)
        seen.leaks = np.array([states_answer(task, t.completion.text) for t in groups[0]], dtype=np.float64)
        for fork in forks:
            if fork.fork is not None and fork.fork.kind == RATE:
                seen.ratings = [first_share(turn.completion.text) for turn in fork.turns]
            else:
                seen.solo_turns, seen.solo = list(fork.turns), _outcomes(task, fork.turns)
        if seen.solo_turns and all(not t.completion.text and len(t.completion.token_ids) > 1 for t in seen.solo_turns):
            raise ValueError(f"dialogue {episode.id}: every solo answer has tokens but no text; the engine lost it")
        if not seen.solo_turns and (known := self._cached(episode, history)) is not None:
            seen.solo = np.array(known, dtype=np.float64)
        return seen

    def _groups(self, credit: Credit, scope: str, seen: _Seen, history: Mapping[str, Any]) -> list[_Group]:
        """The thoughts; then the answers, all of a question together, or those to each thought when it has several."""
        thinker, solver = self._rewards(credit, scope, seen, history)
        thinker = _cut_is_worst(thinker - self.leak_penalty * seen.leaks, seen.thoughts)
        groups = [_Group("thinker", seen.thoughts, thinker, seen.joint.mean(axis=1))]
        answered = [k for k, row in enumerate(seen.replies) if row]
        for rows in [answered] if self.answers == 1 else [[k] for k in answered]:
            turns = [turn for k in rows for turn in seen.replies[k]]
            if turns:
                rewards = _cut_is_worst(solver[rows].ravel(), turns)
                groups.append(_Group("solver", turns, rewards, seen.joint[rows].ravel()))
        return groups

    def _rewards(
        self, credit: Credit, scope: str, seen: _Seen, history: Mapping[str, Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rewards of thoughts [n] and of answers [n, m]."""
        joint = seen.joint.mean(axis=1)
        match self.preset:
            case "effective" | "shared":
                return joint, seen.joint
            case "published_v1":
                j, s = (joint + 1) / 2, pair_solos((seen.solo + 1) / 2, len(joint))
                credit.remember(f"v1|{scope}|joint", j)
                credit.remember(f"v1|{scope}|solo", s)
                before = _published(history.get("v1", {}).get(scope, {}))
                thinker, solver = ccpo.published_v1(j, s, before, alpha=self.alpha, eta=self.eta)
            case "published_event" | "published_continuous":
                shaped = ccpo.published_event if self.preset == "published_event" else ccpo.published_continuous
                thinker, solver = shaped(joint, np.full_like(joint, seen.solo.mean()), weight=self.bonus), joint
            case "sepo":
                bonus = self._rating_bonus(credit, seen)
                thinker = sepo.rewards(joint, bonus, weight=self.bonus)
                solver = sepo.rewards(joint, -bonus, weight=self.bonus)
        return thinker, solver[:, None]

    def _rating_bonus(self, credit: Credit, seen: _Seen) -> np.ndarray:
        """SEPO's bonus of each thought, 0 where one of its two ratings is missing or unreadable."""
        for rating in seen.ratings:
            credit.observe("rating_unreadable", rating is None)
        given = iter(np.nan if rating is None else rating for rating in seen.ratings)
        pairs = [(next(given, np.nan), next(given, np.nan)) if row else (np.nan, np.nan) for row in seen.replies]
        t, v = np.array(pairs, dtype=np.float64).T
        readable = ~np.isnan(t + v)
        share = sepo.shares(np.where(readable, t, 0.5), np.where(readable, v, 0.5), eta=self.rating_self)
        return (sepo.centred_bonus if self.rating_centred else sepo.plain_bonus)(share, readable)

    def _advantages(self, key: str, rewards: np.ndarray, solo: np.ndarray, history: Mapping[str, Any]) -> np.ndarray:
        baseline, scale, squash = self.shape
        if len(rewards) < 2 and baseline in ("blended", "leave_one_out"):
            baseline = "solo_mean" if len(solo) else "group_mean"  # the mean of one is itself: no signal
        weight, sigma = role_history.weight_and_sigma(history.get("run", {}).get(key, {}))
        return advantages(
            rewards,
            baseline=baseline,
            scale=scale,
            squash=squash,
            solo=solo,
            weight=weight,
            history_std=sigma,
            min_std=self.min_std,
        )

    def _diagnose(self, credit: Credit, seen: _Seen) -> None:
        """Accuracies with and without the thinker, who helped or hurt, what leaked, what was cut off."""
        joint = seen.joint.mean(axis=1)
        credit.observe("joint_accuracy", (seen.joint > 0).mean())
        for leak, thought in zip(seen.leaks, seen.thoughts, strict=True):
            credit.observe("leak", leak)
            credit.observe("truncated/thinker", thought.completion.finish == "length")
        for turn in (t for row in seen.replies for t in row):
            credit.observe("truncated/solver", turn.completion.finish == "length")
        if not len(seen.solo):
            return
        credit.observe("solo_accuracy", (seen.solo > 0).mean())
        credit.observe("solo_cached", not seen.solo_turns)
        helped, hurt = (joint > 0) & (seen.solo.mean() < 0), (joint < 0) & (seen.solo.mean() > 0)
        for name, rows in (("helped", helped), ("hurt", hurt), ("same", ~helped & ~hurt)):
            credit.observe(name, rows.mean())

    # ---- the run's history ---------------------------------------------------------------------------------------

    def remember(self, history: Mapping[str, Any], streams: Mapping[str, list[float]]) -> dict[str, Any]:
        """run: by scope and role; v1: the first paper's, by scope; solos: by question, until the solver learns."""
        parts: dict[str, dict[str, Any]] = {name: dict(history.get(name, {})) for name in ("run", "v1", "solos")}
        rows = {name: np.array(values, dtype=np.float64) for name, values in streams.items()}
        for name in sorted(n for n in rows if n.endswith("|rewards")):
            key, stem = name[len("run|") : -len("|rewards")], name.removesuffix("rewards")
            left_out, solo = rows[f"{stem}left_out"], rows[f"{stem}solo"]
            parts["run"][key] = role_history.updated(
                parts["run"].get(key, {}), rows[name], left_out, solo, decay=self.decay
            )
        for name in sorted(n for n in rows if n.endswith("|joint")):
            scope = name[len("v1|") : -len("|joint")]
            before = _published(parts["v1"].get(scope, {}))
            after = ccpo.update_history(before, rows[name], rows[f"v1|{scope}|solo"], decay=self.decay)
            parts["v1"][scope] = asdict(after)
        known = {name[len("solos|") :]: values for name, values in streams.items() if name.startswith("solos|")}
        parts["solos"] = {} if any(streams.get("solver_learned", ())) else parts["solos"] | known
        return dict(history) | {name: part for name, part in parts.items() if part or name in history}

    def figures(self, streams: Mapping[str, list[float]]) -> dict[str, float]:
        """Correlation of each role's advantages with the plain ones, over all rows of the step."""
        found = {}
        for role in ROLES:
            own, plain = (np.array(streams.get(f"{kind}|{role}", ())) for kind in ("advantage", "plain"))
            if len(own) > 1 and own.std() > 0 and plain.std() > 0:
                found[f"plain_correlation/{role}"] = float(np.corrcoef(own, plain)[0, 1])
        return found


@dataclass(frozen=True, slots=True)
class _Group:
    """Siblings of one role, what they are rewarded with, and the outcomes behind it."""

    role: Role
    turns: Sequence[Turn]
    rewards: np.ndarray
    outcomes: np.ndarray


@dataclass(slots=True)
class _Seen:
    """A dialogue in outcomes of -1 and +1."""

    thoughts: list[Turn]
    replies: list[list[Turn]]  # the answers to each thought; none where it was cut off
    joint: np.ndarray  # [n, m]
    leaks: np.ndarray = field(default_factory=lambda: np.zeros(0))  # [n]
    solo_turns: list[Turn] = field(default_factory=list)
    solo: np.ndarray = field(default_factory=lambda: np.zeros(0))
    ratings: list[float | None] = field(default_factory=list)  # of the thinker's share: by thinker, by solver, ...


def _outcomes(task: Task, turns: Sequence[Turn]) -> np.ndarray:
    right = np.array([grade(task, read_answer(task, t.completion)) == "right" for t in turns], dtype=bool)
    return ccpo.outcomes(right, np.array([t.completion.finish == "length" for t in turns], dtype=bool))


def _cut_is_worst(rewards: np.ndarray, turns: Sequence[Turn]) -> np.ndarray:
    """Rewards in which whatever was cut off has the least of its group, whatever shaped the others."""
    return np.where([t.completion.finish == "length" for t in turns], rewards.min(), rewards)


def _published(data: Mapping[str, Any]) -> ccpo.CreditHistory:
    return ccpo.CreditHistory(**{name: PublishedMoments(**part) for name, part in data.items()})
