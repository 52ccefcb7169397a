"""Turn expected errors into one sentence for the terminal, and define the exit codes."""

from __future__ import annotations

from typing import Final

FAILURE: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""Exit codes of all commands."""


def explain(error: BaseException) -> str | None:
    """Return the sentence that reports an expected error of a broker, log or client; None for any other error."""
    from ..protocol.errors import KafkaError

    if isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return None


def is_setting(error: BaseException) -> bool:
    """Whether an error reports a wrong setting of the client, such as a malformed address."""
    from ..client.errors import ConfigError

    return isinstance(error, ConfigError)
