"""Parses and resolves JSON pointers (RFC 6901).

/a/b/0 points to a nested value, and the empty pointer points to the whole document.
"""

from __future__ import annotations

from typing import Any, Final

MISSING: Final = object()
"""Returned for a pointer to a value that does not exist."""


def parse(pointer: str) -> tuple[str, ...]:
    """Return the steps of a JSON pointer. Raises ValueError for a malformed pointer."""
    if pointer and not pointer.startswith("/"):
        raise ValueError(f"{pointer!r} is not a JSON pointer: it must begin with /, as in /data/items")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:])


def resolve(steps: tuple[str, ...], document: Any) -> Any:
    """Return the value that the steps of a JSON pointer lead to, or MISSING."""
    for step in steps:
        if isinstance(document, dict) and step in document:
            document = document[step]
        elif isinstance(document, list) and step.isdecimal() and int(step) < len(document):
            document = document[int(step)]
        else:
            return MISSING
    return document
