"""Tell whether the value of a security setting asks for a protection, so that it must not be ignored."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"
"""Shown instead of a value, which may be a password."""

_ASKS_FOR_NOTHING: Final = ("", "none", "false", "disable", "disabled")


def asks_for_protection(value: str) -> bool:
    """Return whether the value of a security setting asks for more than plaintext without checks."""
    return value.strip().lower() not in _ASKS_FOR_NOTHING
