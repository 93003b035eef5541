"""Errors a user can cause. Each carries one line: what is wrong, what was received, what to do."""


class CounterpointError(Exception):
    """Base of every error the command line turns into one line and exit code 2."""


class ConfigError(CounterpointError):
    """A setting is unknown, malformed or contradicts another."""


class DataError(CounterpointError):
    """A file or data set is missing, empty, gated or malformed."""


class MissingExtra(CounterpointError):
    """An optional dependency is not installed; the message names the pip command."""

    def __init__(self, package: str, extra: str, needed_for: str) -> None:
        super().__init__(f'{needed_for} needs the package {package!r}: run pip install "counterpoint[{extra}]"')


class EngineError(CounterpointError):
    """An engine does not answer, or is lost; what it had answered is on disk."""


class RankError(CounterpointError):
    """The processes of one run have lost each other, or differ."""


class ResumeError(CounterpointError):
    """A run directory cannot be continued with these settings."""
