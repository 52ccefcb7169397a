"""Decides whether a security setting requests protection. Such a setting must not be ignored silently."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"
"""The text that is shown instead of a value, which may be a password."""

_ASKS_FOR_NOTHING: Final = ("", "none", "false", "disable", "disabled")


def asks_for_protection(value: str) -> bool:
    """Return whether the value of a security setting requests protection.

    Every value does, except for an empty value, none, false, disable and disabled.
    """
    return value.strip().lower() not in _ASKS_FOR_NOTHING
