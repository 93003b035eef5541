"""Dialogues for the browser: a small index to filter by, and compressed blocks that a page opens only when it needs them."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass, field
from typing import Any

from counterpoint.report.readings import Branch, Dialogue, Move, Reply

BLOCK = 50  # dialogues of one block
PLAYED_TEXT, OTHER_TEXT = 200_000, 4_000  # characters of a reply that are kept: of the played one, of a sibling


@dataclass(slots=True)
class Packer:
    """Collects dialogues; `index` and `blocks` go into the page."""

    index: list[list[Any]] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)
    _open: list[dict[str, Any]] = field(default_factory=list)

    def add(self, dialogue: Dialogue, *, run: int, phase: str, step: int, task_set: str) -> None:
        """One more dialogue; its row says where it lies and what it can be filtered by."""
        turns = dialogue.episode.turns
        tokens = sum(len(t.completion.token_ids) for t in turns)
        cut = any(t.completion.finish == "length" for t in turns)
        spoken = sum(bool(move.replies) for move in dialogue.moves)
        row = [run, phase, step, task_set, dialogue.episode.id, dialogue.first, dialogue.final, dialogue.change]
        self.index.append([*row, spoken, tokens, int(cut)])
        self._open.append(dialogue_record(dialogue))
        if len(self._open) == BLOCK:
            self.close()

    def close(self) -> None:
        """Compress what is open."""
        if self._open:
            self.blocks.append(squeeze(self._open))
            self._open = []

    def squeezed_index(self) -> str:
        return squeeze(self.index)


def squeeze(data: Any) -> str:
    """JSON, gzipped, in base64: the page opens it with DecompressionStream."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return base64.b64encode(gzip.compress(text, 6, mtime=0)).decode()


def dialogue_record(dialogue: Dialogue) -> dict[str, Any]:
    """A dialogue as the page's script reads it."""
    task = dialogue.episode.task
    return {
        "id": dialogue.episode.id,
        "question": task.question,
        "choices": list(task.choices),
        "gold": task.answer,
        "first": [dialogue.first_answer, dialogue.first],
        "final": [dialogue.episode.answer, dialogue.final],
        "change": dialogue.change,
        "moves": [_move(move) for move in dialogue.moves],
        "others": [_branch(branch) for branch in dialogue.others],
    }


def _move(move: Move) -> dict[str, Any]:
    record: dict[str, Any] = {"agent": move.agent, "role": move.role, "action": move.action, "reads": move.reads}
    if move.decision is not None:
        record["probs"] = [round(p, 4) for p in move.decision.probs]
        record["took"] = move.decision.action
        record["state"] = move.decision.state
    if move.values is not None:
        record["values"] = [round(v, 4) for v in move.values]
    if move.branch is not None:
        record["branch"] = _branch(move.branch)
    record["replies"] = [_reply(reply) for reply in move.replies]
    return record


def _branch(branch: Branch) -> dict[str, Any]:
    record: dict[str, Any] = {"title": branch.title, "moves": [_move(move) for move in branch.moves]}
    if branch.whole:
        record["final"] = [branch.answer, branch.outcome]
    return record


def _reply(reply: Reply) -> dict[str, Any]:
    completion = reply.turn.completion
    limit = PLAYED_TEXT if reply.turn.sample == 0 else OTHER_TEXT
    record: dict[str, Any] = {"text": completion.text[:limit], "tokens": len(completion.token_ids), "said": reply.said}
    if len(completion.text) > limit:
        record["left_out"] = len(completion.text) - limit
    if completion.finish != "stop":
        record["finish"] = completion.finish
    for name in ("right", "reward", "advantage"):
        value = getattr(reply, name)
        if value is not None:
            record[name] = value if isinstance(value, bool) else round(value, 4)
    return record
