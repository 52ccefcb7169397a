"""Let a simulated state log refuse batches above max.message.bytes, as a real log does, unless they are essential."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncelog.protocol.errors import ErrorCode, KafkaError

MAX_MESSAGE_BYTES = 1_048_588


def limit_batches(log: Any) -> None:
    """Make `log.append` raise MESSAGE_TOO_LARGE, and append nothing, if the records have too many bytes."""
    append = log.append

    def checked(
        partition: int, records: Iterable[tuple[bytes, bytes | None]], essential: bool = False, **fields: Any
    ) -> Any:
        records = list(records)
        if not essential and sum(len(key) + len(value or b"") for key, value in records) > MAX_MESSAGE_BYTES:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        return append(partition, records, essential=essential, **fields)

    log.append = checked
