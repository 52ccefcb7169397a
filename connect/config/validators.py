"""Checks of one value of a setting; their messages are Kafka's, so that tools recognise them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ConfigValueError

Validator = Callable[[str, Any], None]
"""Takes the setting's name and parsed value; raises ConfigValueError."""


class Range:
    """A number from `low` to `high`, both inclusive; None leaves an end open."""

    def __init__(self, low: float | None = None, high: float | None = None) -> None:
        self.low, self.high = low, high

    def __call__(self, name: str, value: float | None) -> None:
        """Raise ConfigValueError for None and for a number outside the range."""
        if value is None:
            raise ConfigValueError(name, None, "Value must be non-null")
        if self.low is not None and value < self.low:
            raise ConfigValueError(name, value, f"Value must be at least {self.low}")
        if self.high is not None and value > self.high:
            raise ConfigValueError(name, value, f"Value must be no more than {self.high}")

    def __str__(self) -> str:
        return f"[{'...' if self.low is None else self.low},...{'' if self.high is None else f',{self.high}'}]"


def at_least(low: float) -> Range:
    """Return the check for a number of at least `low`."""
    return Range(low)


def between(low: float, high: float) -> Range:
    """Return the check for a number from `low` to `high`, both inclusive."""
    return Range(low, high)


class OneOf:
    """One of these texts."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, name: str, value: str | None) -> None:
        """Raise ConfigValueError for any other text."""
        if value not in self.choices:
            raise ConfigValueError(name, value, f"String must be one of: {', '.join(self.choices)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]"


class OneOfIgnoringCase:
    """One of these texts, in upper or lower case."""

    def __init__(self, *choices: str) -> None:
        self.choices = tuple(choice.upper() for choice in choices)

    def __call__(self, name: str, value: str | None) -> None:
        """Raise ConfigValueError for any other text."""
        if value is None or value.upper() not in self.choices:
            problem = f"String must be one of (case insensitive): {', '.join(self.choices)}"
            raise ConfigValueError(name, value, problem)

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.choices)}]"


class NonNull:
    """Any value but None."""

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigValueError for None."""
        if value is None:
            raise ConfigValueError(name, None, "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


class NonEmptyString:
    """A text that is not empty."""

    def __call__(self, name: str, value: str | None) -> None:
        """Raise ConfigValueError for the empty text."""
        if value is not None and not value:
            raise ConfigValueError(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"
