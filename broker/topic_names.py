"""Check topic names, and define the names of the broker's internal topics."""

from __future__ import annotations

import re
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics that clients can see but not write, create or delete. Clients cannot see METADATA_TOPIC at all."""

MAX_LENGTH: Final = 249
_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """Return what is wrong with a topic name, or None if the name is valid."""
    if not name:
        return "The topic name is empty. Use 1 to 249 characters."
    if name in (".", ".."):
        return f"The topic name {name!r} is not allowed. Use another name."
    if len(name) > MAX_LENGTH:
        return f"The topic name has {len(name)} characters. Use at most {MAX_LENGTH}."
    if not _ALLOWED.fullmatch(name):
        return f"The topic name {name!r} is not allowed. Use only letters, digits, '.', '_' and '-'."
    return None


class TopicNames:
    """A set of topic names that finds collisions: two names collide if they differ only in '.' and '_'.

    Kafka's metric names cannot distinguish the two characters, so Kafka refuses a topic whose name collides.
    """

    def __init__(self) -> None:
        self._by_folded: dict[str, dict[str, None]] = {}

    def add(self, name: str) -> None:
        """Add a name; do nothing if the set contains it."""
        self._by_folded.setdefault(name.replace(".", "_"), {})[name] = None

    def discard(self, name: str) -> None:
        """Remove a name; do nothing if the set does not contain it."""
        folded = name.replace(".", "_")
        names = self._by_folded.get(folded, {})
        names.pop(name, None)
        if not names:
            self._by_folded.pop(folded, None)

    def colliding(self, name: str) -> str | None:
        """Return another name in the set that collides with `name`, or None."""
        return next((other for other in self._by_folded.get(name.replace(".", "_"), ()) if other != name), None)
