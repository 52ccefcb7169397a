"""`TopicLog`: one internal topic, as the stores see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class LogRecord(NamedTuple):
    """A record of an internal topic; a `value` of None deletes what has the key."""

    key: bytes
    value: bytes | None
    partition: int = 0
    offset: int = -1


Apply = Callable[[LogRecord], None]


class TopicLog(Protocol):
    """Reads a compacted topic from its beginning, keeps following it, and appends to it.

    `apply` is called for each record in the order of its partition, from `start` on; it must not raise.
    """

    async def start(self, apply: Apply) -> None:
        """Create the topic if it is missing, and read all that it holds now."""

    async def stop(self) -> None:
        """End the reading."""

    async def read_to_end(self, timeout_s: float | None = None) -> None:
        """Wait until everything that the topic held at the call is applied, undecided transactions among it.

        Raises TimeoutError.
        """

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append (key, value) pairs and wait until they are acknowledged."""

    async def append_fenced(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Append all of the pairs or none, as the leader: where another one has taken over, raise ProducerFencedError.

        A log without a transactional id appends them as `append` does.
        """

    async def claim(self) -> None:
        """Become the one that may `append_fenced`, and fence whoever was it before."""
