"""Let a simulated state log refuse batches above max.message.bytes, as a real log does, unless they are essential."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncelog.protocol.errors import ErrorCode, KafkaError

MAX_MESSAGE_BYTES = 1_048_588


def limit_batches(log: Any) -> None:
    """Let `log.append` refuse records above the limit (MESSAGE_TOO_LARGE), and `log.largest_batch` return it."""
    append = log.append

    def checked(
        partition: int, records: Iterable[tuple[bytes, bytes | None]], essential: bool = False, **fields: Any
    ) -> Any:
        records = list(records)
        if not essential and sum(len(key) + len(value or b"") for key, value in records) > MAX_MESSAGE_BYTES:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return append(partition, records, essential=essential, **fields)

    log.append = checked
    log.largest_batch = lambda: MAX_MESSAGE_BYTES
