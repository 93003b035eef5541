"""counterpoint: cooperative reasoning by several LLMs, learned with reinforcement."""

__version__ = "0.1.0"
