"""Checks single values of settings. The messages are Kafka's, so that tools recognise them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..errors import ConfigValueError
from .java_regex import compiled

Validator = Callable[[str, Any], None]
"""A function that takes a setting's name and parsed value, and raises ConfigValueError for an invalid value."""


class Range:
    """Accepts a number from `low` to `high`, both inclusive. None means no bound."""

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
    """Return a validator for numbers of at least `low`."""
    return Range(low)


def between(low: float, high: float) -> Range:
    """Return a validator for numbers from `low` to `high`, both inclusive."""
    return Range(low, high)


class OneOf:
    """Accepts only the given strings."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, name: str, value: str | None) -> None:
        """Raise ConfigValueError for a string that is not one of `choices`, and for None."""
        if value not in self.choices:
            raise ConfigValueError(name, value, f"String must be one of: {', '.join(self.choices)}")

    def __str__(self) -> str:
        return f"[{', '.join(self.choices)}]"


class OneOfIgnoringCase:
    """Accepts only the given strings, without regard to case."""

    def __init__(self, *choices: str) -> None:
        self.choices = tuple(choice.upper() for choice in choices)

    def __call__(self, name: str, value: str | None) -> None:
        """Raise ConfigValueError for a string that is not one of `choices`, and for None."""
        if value is None or value.upper() not in self.choices:
            problem = f"String must be one of (case insensitive): {', '.join(self.choices)}"
            raise ConfigValueError(name, value, problem)

    def __str__(self) -> str:
        return f"(case insensitive) [{', '.join(self.choices)}]"


class NonNull:
    """Accepts any value but None."""

    def __call__(self, name: str, value: object) -> None:
        """Raise ConfigValueError if the value is None."""
        if value is None:
            raise ConfigValueError(name, None, "entry must be non null")

    def __str__(self) -> str:
        return "non-null string"


class NonEmptyList:
    """Accepts a list with at least one element."""

    def __call__(self, name: str, value: list[str] | None) -> None:
        """Raise ConfigValueError for an empty list and for None."""
        if not value:
            raise ConfigValueError(name, None if value is None else "[]", "Empty list")

    def __str__(self) -> str:
        return "non-empty list"


class Every:
    """Accepts a value that all of the given validators accept. They are called in order."""

    def __init__(self, *validators: Validator) -> None:
        self._validators = validators

    def __call__(self, name: str, value: Any) -> None:
        """Raise the ConfigValueError of the first validator that refuses the value."""
        for validator in self._validators:
            validator(name, value)

    def __str__(self) -> str:
        return ", ".join(map(str, self._validators))


class RegularExpression:
    """Accepts a regular expression of Java, as far as `compiled` supports it."""

    def __call__(self, name: str, value: str | None) -> None:
        """Raise ConfigValueError if the value is None or is not a valid regular expression."""
        try:
            compiled(value or "")
        except re.error as error:
            raise ConfigValueError(name, value, f"Invalid regex: {error}") from None
        if value is None:
            raise ConfigValueError(name, None, "Invalid regex: no value is given")

    def __str__(self) -> str:
        return "valid regex"


class NonEmptyString:
    """Accepts None and any string that is not empty."""

    def __call__(self, name: str, value: str | None) -> None:
        """Raise ConfigValueError if the string is empty."""
        if value is not None and not value:
            raise ConfigValueError(name, value, "String must be non-empty")

    def __str__(self) -> str:
        return "non-empty string"
