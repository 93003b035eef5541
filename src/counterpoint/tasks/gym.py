"""reasoning-gym: procedural sets drawn from a seed and graded by their own scorers.

A task's scorer names all that is needed to draw its entry again: "rg:NAME#INDEX?OPTIONS", with the options in JSON.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Literal

from counterpoint.errors import ConfigError, DataError, MissingExtra
from counterpoint.records import Task
from counterpoint.rng import fold
from counterpoint.tasks.spec import TaskSource
from counterpoint.tasks.worker import WORKER


def gym_tasks(settings: TaskSource, split: str) -> list[Task]:
    """`size` tasks of a set, those of another split drawn from another seed."""
    name = settings.source.removeprefix("rg:")
    _require(settings.label)
    import reasoning_gym

    seed = fold(settings.seed, "rg", name, split) % 2**31
    options = {**settings.options, "seed": seed, "size": settings.size}
    if name not in reasoning_gym.factory.DATASETS:
        raise ConfigError(f"unknown reasoning-gym set {name!r}; see reasoning_gym.factory.DATASETS for the names")
    try:
        dataset = reasoning_gym.create_dataset(name, **options)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"task set rg:{name}: its generator refuses {settings.options}: {error}") from error
    spelled = json.dumps(options, sort_keys=True)
    tasks = []
    for index, entry in zip(range(settings.size), dataset, strict=True):
        answer = "" if entry["answer"] is None else str(entry["answer"])
        tasks.append(
            Task(
                f"{settings.label}/{split}/{index}",
                entry["question"],
                answer,
                "text",
                (),
                f"rg:{name}#{index}?{spelled}",
            )
        )
    return tasks


def score(task: Task, answer: str, *, deadline: float) -> Literal["right", "wrong", "error"]:
    """Right where the set's own scorer gives the full score; asked in the worker, as it may compute for long."""
    name, _, rest = task.scorer.removeprefix("rg:").partition("#")
    index, _, options = rest.partition("?")
    if not task.scorer.startswith("rg:") or not index.isdecimal():
        raise DataError(f"task {task.id}: unknown scorer {task.scorer!r}")
    _require(f"scorer of task {task.id}")
    entry: dict[str, str | int] = {"name": name, "options": options, "index": int(index), "question": task.question}
    prepare: dict[str, str | int] = {"op": "prepare", "name": name, "options": options}
    return WORKER.ask({"op": "gym", **entry, "answer": answer}, deadline=deadline, prepare=prepare)


def _require(needed_for: str) -> None:
    if find_spec("reasoning_gym") is None:
        raise MissingExtra("reasoning-gym", "gym", needed_for)
