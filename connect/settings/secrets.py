"""`Secrets`: hides the values of variables in messages that leave the worker, such as the status of a connector."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote, quote_plus

from ..errors import ConnectError

_WORD: Final = 4
"""A value with fewer characters is hidden only where it is not part of a longer word."""


class Secrets:
    """The values of the variables in settings, each with its variable, such as ${file:/etc/db:password}."""

    def __init__(self, others: Secrets | None = None) -> None:
        """Begin with the values in `others`."""
        self._replacements: dict[str, str] = {} if others is None else dict(others._replacements)

    def add(self, value: str, variable: str) -> None:
        """Hide a value, each of its lines, and the forms of both in Python's and JSON's strings and in URLs."""
        for part in {value, *value.splitlines()}:
            text = part.strip()
            escaped = (repr(text)[1:-1], json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
            for form in (text, *escaped, quote(text), quote(text, safe=""), quote_plus(text)):
                if form:
                    self._replacements.setdefault(form, variable)

    def hidden(self, text: str) -> str:
        """Return a text with variables in place of their values."""
        if not self._replacements:
            return text
        # In one pass, because a variable may contain what looks like a value.
        found = {**dict.fromkeys(self._replacements.values()), **self._replacements}
        patterns = (
            re.escape(each) if len(each) >= _WORD else rf"(?<!\w){re.escape(each)}(?!\w)"
            for each in sorted(found, key=len, reverse=True)
        )
        return re.sub("|".join(patterns), lambda match: found[match[0]] or match[0], text)

    @contextmanager
    def hidden_in_errors(self) -> Iterator[None]:
        """Hide the values in the messages of errors that the block raises; such an error becomes a ConnectError."""
        try:
            yield
        except Exception as error:
            message = self.hidden(str(error))
            if message == str(error):
                raise
            if isinstance(error, ConnectError):
                error.args = (message,)
                raise
            raise ConnectError(message) from error
