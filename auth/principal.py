"""`Principal`: the identity of a client, as access control, quotas and logs name it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """An identity in Kafka's form. It has a `kind`, which is `User` for clients, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Return the principal that a string such as `User:alice` names. Raises ValueError for any other form."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is not a principal. Write a type, a colon and a name, for example User:alice")
        return cls(kind, name)


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The identity of clients that have not authenticated."""
