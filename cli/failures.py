"""Turn expected errors into one sentence for the terminal, and define the exit codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FAILURE: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""Exit codes of all commands."""


class Terminated(Exception):
    """A signal has ended the command, and its clients are closed. The exit code is 128 plus the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


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


def not_text(error: BaseException, arguments: Iterable[str]) -> str | None:
    """Return the sentence that reports that an argument is not valid UTF-8, or None for any other error.

    Names and settings are sent to brokers in UTF-8. The paths of files may contain any bytes.
    """
    from ..protocol.errors import EncodeError

    if isinstance(error, ValueError | EncodeError):
        for argument in arguments:
            try:
                argument.encode()
            except UnicodeEncodeError:
                return f"the argument {argument!r} is not valid UTF-8"
    return None
