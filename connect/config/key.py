"""`ConfigKey`: one row of a table of settings, and the words that describe it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol

from .types import Type
from .validators import Validator

REQUIRED: Final = object()
"""As a default: the setting has none and must be given."""


class Importance(Enum):
    """How much a reader of the documentation should care."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(Enum):
    """How wide a form shows the setting."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class Recommender(Protocol):
    """Proposes values of a setting, knowing the values of the others."""

    def valid_values(self, name: str, parsed: Mapping[str, Any]) -> Iterable[object]:
        """Return the values to propose; raises ConfigValueError."""

    def visible(self, name: str, parsed: Mapping[str, Any]) -> bool:
        """Return whether the setting matters, given the others."""


@dataclass(frozen=True)
class ConfigKey:
    """One setting. `default` is a parsed value, or REQUIRED; `dependents` are settings that this one decides about."""

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
        """Whether there is no default."""
        return self.default is REQUIRED
