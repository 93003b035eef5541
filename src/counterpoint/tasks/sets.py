"""The named benchmarks: where each lies, what its columns mean, and how many rows it must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from counterpoint.records import Kind
from counterpoint.tasks.spec import Columns


@dataclass(frozen=True, slots=True)
class NamedSet:
    """One benchmark on the Hugging Face hub."""

    repo: str
    kind: Kind
    columns: Columns
    counts: Mapping[str, int]  # rows by our split name; a split not listed does not exist
    config: str | None = None
    hub_splits: Mapping[str, str] = field(default_factory=dict)  # our split name -> the hub's, where they differ
    gold_pattern: str | None = None
    revision: str | None = None


_QUESTION_ANSWER = Columns(question="question", answer="answer")
_PROBLEM_ANSWER = Columns(question="problem", answer="answer")
_GPQA = Columns(
    question="Question",
    answer="Correct Answer",
    incorrect=("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
    id="Record ID",
)

SETS: dict[str, NamedSet] = {
    "gsm8k": NamedSet(
        "openai/gsm8k",
        "number",
        _QUESTION_ANSWER,
        {"train": 7473, "test": 1319},
        config="main",
        gold_pattern=r"####\s*(\S[^\n]*)",
    ),
    "math500": NamedSet(
        "HuggingFaceH4/MATH-500",
        "math",
        Columns(question="problem", answer="answer", id="unique_id"),
        {"test": 500},
    ),
    "gpqa-diamond": NamedSet(
        "Idavidrein/gpqa",
        "choice",
        _GPQA,
        {"test": 198},
        config="gpqa_diamond",
        hub_splits={"test": "train"},
    ),
    "aime24": NamedSet(
        "HuggingFaceH4/aime_2024", "number", _PROBLEM_ANSWER, {"test": 30}, hub_splits={"test": "train"}
    ),
    "aime25": NamedSet("math-ai/aime25", "number", _PROBLEM_ANSWER, {"test": 30}),
    "amc23": NamedSet("math-ai/amc23", "number", _QUESTION_ANSWER, {"test": 40}),
    "minerva": NamedSet("math-ai/minervamath", "math", _QUESTION_ANSWER, {"test": 272}),
    "gaokao2023en": NamedSet(
        "MARIO-Math-Reasoning/Gaokao2023-Math-En",
        "math",
        _QUESTION_ANSWER,
        {"test": 385},
        hub_splits={"test": "train"},
    ),
    "logiqa": NamedSet(
        "lucasmccabe/logiqa",
        "choice",
        Columns(context="context", question="query", choices="options", answer="correct_option"),
        {"train": 7376, "validation": 651, "test": 651},
        revision="refs/convert/parquet",
    ),
    "medqa": NamedSet(
        "GBaker/MedQA-USMLE-4-options",
        "choice",
        Columns(question="question", choices="options", answer="answer_idx"),
        {"train": 10178, "test": 1273},
    ),
}
