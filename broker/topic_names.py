"""Which names a topic may have, and which topics are the broker's own."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
        return "A topic name can't be empty."
    if name in (".", ".."):
        return f"A topic can't be called {name!r}."
    if len(name) > MAX_LENGTH:
        return f"The topic name has {len(name)} characters; {MAX_LENGTH} are allowed."
    if not _ALLOWED.fullmatch(name):
        return f"The topic name {name!r} has characters other than letters, digits, '.', '_' and '-'."
    return None


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """An existing name that differs only in '.' and '_': metric names can't tell the two apart, so Kafka refuses it."""
    if "." not in name and "_" not in name:
        return None
    folded = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == folded), None)
