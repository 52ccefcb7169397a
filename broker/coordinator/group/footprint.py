"""Counts the memory of groups and their members, over all groups, so that no client can use up the broker's.

Owns two totals: bytes of members (`group.members.max.bytes`), and of member ids that were handed out and that nobody
has joined with yet (`group.pending.members.max.bytes`). The first is full when it is full. Of the second the oldest id
gives way to a new one: whoever asks for an id comes back with it at once, and one that was given up asks anew.

Records of the log are taken as they are: the bounds hold for what clients add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MEMBER_OVERHEAD: Final = 2_000
"""Bytes that a member takes beside its strings: objects, its timer, its place in the group's maps."""

PENDING_OVERHEAD: Final = 1_500
"""The same for a pending member id, with the group that may exist for it alone."""

PendingMember = tuple[str, str]
"""(group id, member id)."""


class GroupFootprint:
    """The totals of one group coordinator."""

    def __init__(self, max_member_bytes: int, max_pending_bytes: int) -> None:
        self.max_member_bytes = max_member_bytes
        self.max_pending_bytes = max_pending_bytes
        self.member_bytes = 0
        self.pending_bytes = 0
        self.on_given_up: Callable[[str, str], None] = lambda group_id, member_id: None
        """Called with group and member id of a pending member that gives way to a new one."""
        self._pending: dict[PendingMember, int] = {}

    def has_room(self, size: int) -> bool:
        """Whether members may take so many bytes more."""
        return self.member_bytes + size <= self.max_member_bytes

    def add_pending(self, group_id: str, member_id: str) -> None:
        """Count a member id that was handed out; the oldest ones give way."""
        size = PENDING_OVERHEAD + len(group_id) + len(member_id)
        self._pending[group_id, member_id] = size
        self.pending_bytes += size
        while self.pending_bytes > self.max_pending_bytes and len(self._pending) > 1:
            oldest = next(iter(self._pending))
            self.remove_pending(*oldest)
            self.on_given_up(*oldest)

    def remove_pending(self, group_id: str, member_id: str) -> None:
        """The member id has been joined with, or given up."""
        self.pending_bytes -= self._pending.pop((group_id, member_id), 0)
