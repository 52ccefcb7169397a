"""How foreseen failures read on the terminal: one sentence that says what, where and what to do; and exit codes."""

from __future__ import annotations

from typing import Final

FAILURE: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""Exit codes of all commands."""


def explain(error: BaseException) -> str | None:
    """Return the sentence for a failure of broker, log or client; None for an error that is not foreseen."""
    from ..protocol.errors import KafkaError

    if isinstance(error, KafkaError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return None


def is_setting(error: BaseException) -> bool:
    """Whether an error is about a setting of the client, such as an address that is none."""
    from ..client.errors import ConfigError

    return isinstance(error, ConfigError)
