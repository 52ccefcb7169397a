"""Reads and sets the log levels of this process, under the names that Kafka Connect's /admin/loggers uses."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from .errors import NotFoundError

LEVELS: Final = {
    "ALL": 1,
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}

_modified: Final[dict[str, int]] = {}
"""The time of each logger's last level change, in milliseconds since the epoch, by the logger's name."""


def all_levels() -> dict[str, dict[str, Any]]:
    """Return the level of every existing logger, including "root", by name."""
    names = [name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]
    return {name: level_of(name) for name in sorted([*names, "root"])}


def level_of(name: str) -> dict[str, Any]:
    """Return a logger's effective level and the time of its last change; raise NotFoundError for an unknown logger."""
    name = _known_as(name)
    if name != "root" and not isinstance(logging.root.manager.loggerDict.get(name), logging.Logger):
        raise NotFoundError(f"Logger {name} not found.")
    number = _logger(name).getEffectiveLevel()
    shown = max((level for level, value in LEVELS.items() if value <= number), key=LEVELS.__getitem__, default="ALL")
    return {"level": shown, "last_modified": _modified.get(name)}


def set_level(name: str, level: str) -> list[str]:
    """Set the level of a logger and of the loggers below it. Return the names of the loggers whose level has changed.

    Raises NotFoundError for an unknown level, as Kafka Connect does.
    """
    if level.upper() not in LEVELS:
        raise NotFoundError(f"invalid log level '{level}'.")
    name = _known_as(name)
    below = [
        each
        for each, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and (name == "root" or each.startswith(f"{name}."))
    ]
    number = LEVELS[level.upper()]
    names = sorted(each for each in (name, *below) if _logger(each).getEffectiveLevel() != number)
    for each in names:
        _logger(each).setLevel(number)
        _modified[each] = int(time.time() * 1000)
    return names


def _known_as(name: str) -> str:
    return "root" if name.lower() == "root" else name


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == "root" else name)
