"""Which names a topic may have, and which topics are the broker's own."""

from __future__ import annotations

import re
from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Topics that clients can see but not write, create or delete. METADATA_TOPIC is not visible at all."""

MAX_LENGTH: Final = 249
_ALLOWED: Final = re.compile(r"[a-zA-Z0-9._-]+")


def name_problem(name: str) -> str | None:
    """What is wrong with a topic name, or None."""
    if not name:
        return "A topic name cannot be empty."
    if name in (".", ".."):
        return f"A topic cannot be called {name!r}."
    if len(name) > MAX_LENGTH:
        return f"The topic name has {len(name)} characters; {MAX_LENGTH} are allowed."
    if not _ALLOWED.fullmatch(name):
        return f"The topic name {name!r} has characters other than letters, digits, '.', '_' and '-'."
    return None


class TopicNames:
    """A set of names that finds collisions: names that differ only in '.' and '_'.

    Metric names cannot tell the two apart, so Kafka refuses the second one.
    """

    def __init__(self) -> None:
        self._by_folded: dict[str, dict[str, None]] = {}

    def add(self, name: str) -> None:
        """Add a name, if it is not there."""
        self._by_folded.setdefault(name.replace(".", "_"), {})[name] = None

    def discard(self, name: str) -> None:
        """Remove a name, if it is there."""
        folded = name.replace(".", "_")
        names = self._by_folded.get(folded, {})
        names.pop(name, None)
        if not names:
            self._by_folded.pop(folded, None)

    def colliding(self, name: str) -> str | None:
        """A name of the set that collides with `name`, which is another; None when there is none."""
        return next((other for other in self._by_folded.get(name.replace(".", "_"), ()) if other != name), None)
