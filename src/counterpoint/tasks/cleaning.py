"""Text as it should have been typed: invisible marks dropped, digits, minus signs and spaces in ASCII."""

from __future__ import annotations

TAIL = 65_536  # an answer stands near the end of a reply: nothing before its last 64 Ki characters is read
LONGEST = 1_000  # an answer longer than this is unreadable

_INVISIBLE = [0xAD, 0x61C, 0x180E, 0xFEFF, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070)]
_SPACES = [0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000]
_ZEROS = [0x660, 0x6F0, 0x966, 0x9E6]  # Arabic-Indic, its eastern form, Devanagari, Bengali
_FRACTIONS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}

_TABLE: dict[int, str | None] = dict.fromkeys(_INVISIBLE)
_TABLE |= dict.fromkeys(_SPACES, " ")
_TABLE |= {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}  # full-width ASCII
_TABLE |= {zero + digit: str(digit) for zero in _ZEROS for digit in range(10)}
_TABLE |= {ord(dash): "-" for dash in "−–—‒‐‑﹣"}
_TABLE |= {ord(sign): f" {value} " for sign, value in _FRACTIONS.items()}
_TABLE |= {ord("⁄"): "/", ord("∕"): "/", ord("’"): "'", ord("“"): '"', ord("”"): '"', ord("\r"): "\n"}


def clean(text: str) -> str:
    """`text` with invisible marks dropped and digits, dashes, quotes and spaces in ASCII; linear in its length."""
    return text.translate(_TABLE)


def spoken(reply: str) -> str:
    """The cleaned tail of a reply without its thinking: after the last </think>, before a <think> that never closes."""
    said = reply.rpartition("</think>")[2]
    return clean(said.partition("<think>")[0][-TAIL:])
