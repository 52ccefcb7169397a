"""`ParsedFile`: a text file that is read and parsed again when it has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from .watched_files import FileState, file_state

T = TypeVar("T")

MAX_FILE_BYTES: Final = 10_000_000
"""The largest file in bytes that is read."""


class ParsedFile(Generic[T]):
    """The parsed content of a text file in UTF-8."""

    def __init__(self, path: Path, parse: Callable[[str], T]) -> None:
        """`parse` takes the text and may raise ValueError, whose message must not contain secrets from the file."""
        self.path = path
        self._parse = parse
        self._state: FileState | None = None
        self._value: T

    def get(self) -> T:
        """Return the result of `parse` for the current content. Blocks.

        Raises OSError, and ValueError if the file is too large or its content is invalid.
        """
        state = file_state(self.path)
        if state != self._state:
            if state.size > MAX_FILE_BYTES:
                raise ValueError(f"{self.path} has more than {MAX_FILE_BYTES:,} bytes")
            self._value = self._parse(self.path.read_text(encoding="utf-8"))
            self._state = state
        return self._value
