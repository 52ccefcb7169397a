"""`TopicLog`: an internal topic, as the stores use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol


class LogRecord(NamedTuple):
    """A record of an internal topic; a `value` of None deletes the key."""

    key: bytes
    value: bytes | None
    partition: int = 0
    offset: int = -1


Apply = Callable[[LogRecord], None]


class TopicLog(Protocol):
    """Reads a compacted topic from its beginning, keeps following it, and appends to it.

    From `start` on, `apply` is called for each record. The records of a partition are applied in order. `apply` must
    not raise.
    """

    async def start(self, apply: Apply) -> None:
        """Create the topic if it is missing, and read everything that it holds now."""

    async def stop(self) -> None:
        """Stop reading."""

    async def read_to_end(self, timeout_s: float | None = None) -> None:
        """Wait until all records that the topic holds now are applied, and until its open transactions have ended.

        Raises TimeoutError after `timeout_s` seconds; None means no limit.
        """

    def places(self, key: bytes) -> Mapping[int, int]:
        """Return the partitions that have had records of a key, each with its newest timestamp for the key, in ms.

        A log with a single partition may return an empty mapping.
        """

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append (key, value) pairs and wait until they are acknowledged."""

    async def append_fenced(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append all (key, value) pairs or none, as the leader.

        Raises ProducerFencedError if another leader has taken over. A log without a transactional id appends the pairs
        as `append` does.
        """

    async def claim(self) -> None:
        """Fence the previous leader and become the only client that may call `append_fenced`."""
