"""The bundled model's tokenizer: byte-level BPE of 512 tokens, one token a digit, fixed phrases whole."""

from __future__ import annotations

import itertools

import tiny_corpus
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 512
SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
PHRASES = (  # the fixed words of prompts.py and of the replies, one token each
    "Solve the problem step by step. End with the line: ",
    "Solve the problem again, better. End with the line: ",
    "Check the solution: solve the problem yourself and compare. End with the line: Verdict: RIGHT or Verdict: WRONG",
    "Is the solution right? First line: RIGHT or WRONG. Second line: one reason.",
    "Plan how to solve the problem. Do not give the final answer.",
    "Current solution (votes ",
    "Solution of agent ",
    "Solution:\n",
    "Final answer: ",
    "Verdict: ",
    "\\boxed{",
    "\\frac{",
)
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build(seed: int, size: int = 30_000) -> PreTrainedTokenizerFast:
    """Train the tokenizer on `size` examples of the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\d|\n+| ?[A-Za-z]+| ?[^\sA-Za-z\d]|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(PHRASES),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = itertools.islice(tiny_corpus.examples(seed), size)
    tokenizer.train_from_iterator((_without_phrases(text) for ex in texts for text in _texts(ex)), trainer)
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=list(SPECIAL[2:]),
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )
    fast.chat_template = TEMPLATE
    return fast


def _texts(example: tiny_corpus.Example) -> list[str]:
    return [*(message.content for message in example.messages), example.reply]


def _without_phrases(text: str) -> str:
    for phrase in PHRASES:
        text = text.replace(phrase, "\n")
    return text
