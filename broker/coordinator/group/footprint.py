"""Counts the memory of all groups' members, so that no client can exhaust the broker's memory.

Keeps two totals. The first counts the bytes of members (limit: `group.members.max.bytes`). The second counts the bytes
of pending member ids, which were assigned to clients that have not joined yet (limit:
`group.pending.members.max.bytes`). When the first limit is reached, new members are refused. When the second limit is
reached, the oldest pending id is discarded. That is harmless, because a client normally joins with its id immediately,
and a client whose id was discarded gets a new id.

The limits apply only to additions by clients; records of the log are always accepted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MEMBER_OVERHEAD: Final = 2_000
"""The memory in bytes of a member without its strings: its objects, its timer and its entries in the group's maps."""

PROTOCOL_OVERHEAD: Final = 150
"""The memory in bytes of an offered protocol without its name and metadata."""

PENDING_OVERHEAD: Final = 1_500
"""The memory in bytes of a pending member id, and of its group, which may exist only because of this id."""

PendingMember = tuple[str, str]
"""A (group id, member id) pair."""


class GroupFootprint:
    """The memory totals of one group coordinator, and their limits."""

    def __init__(self, max_member_bytes: int, max_pending_bytes: int) -> None:
        self.max_member_bytes = max_member_bytes
        self.max_pending_bytes = max_pending_bytes
        self.member_bytes = 0
        self.pending_bytes = 0
        self.on_given_up: Callable[[str, str], None] = lambda group_id, member_id: None
        """The function to call with the (group id, member id) of a pending member that is discarded to make room."""
        self._pending: dict[PendingMember, int] = {}

    def has_room(self, size: int) -> bool:
        """Whether there is memory for `size` more bytes of members."""
        return self.member_bytes + size <= self.max_member_bytes

    def add_pending(self, group_id: str, member_id: str) -> None:
        """Count a pending member id, and discard the oldest pending ids while the total exceeds the limit."""
        size = PENDING_OVERHEAD + len(group_id) + len(member_id)
        self._pending[group_id, member_id] = size
        self.pending_bytes += size
        while self.pending_bytes > self.max_pending_bytes and len(self._pending) > 1:
            oldest = next(iter(self._pending))
            self.remove_pending(*oldest)
            self.on_given_up(*oldest)

    def remove_pending(self, group_id: str, member_id: str) -> None:
        """Stop counting a pending member id, because its client has joined or the id has been discarded."""
        self.pending_bytes -= self._pending.pop((group_id, member_id), 0)
