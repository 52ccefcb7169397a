"""`ConfigKey`: one row of a table of settings, and the enumerations that it uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from .types import Type
from .validators import Validator

REQUIRED: Final = object()
"""The `default` of a setting that has no default value and must be set."""


class Importance(Enum):
    """The importance of a setting, for readers of its documentation."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(Enum):
    """The width of the setting's input field in a form."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Recommender(Protocol):
    """Proposes values of a setting, given the parsed values of the other settings."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Iterable[object]:
        """Return the values to propose for the setting `name`. Raises ConfigValueError."""

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        """Return whether the setting applies, given the values of the other settings."""


@dataclass(frozen=True)
class ConfigKey:
    """One setting.

    `default` is a parsed value, or REQUIRED. `dependents` names the settings that depend on this setting's value.
    """

    name: str
    type: Type
    default: Any
    importance: Importance
    doc: str
    validator: Validator | None = None
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str = ""
    dependents: tuple[str, ...] = ()
    recommender: Recommender | None = None

    @property
    def required(self) -> bool:
        """Whether the setting has no default."""
        return self.default is REQUIRED
