"""What each state of a transaction means to the person who looks at it; for `oncelog txn` and docs/transactions.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

STATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Empty": "A producer has begun with this id, and has no transaction open.",
        "Ongoing": "A transaction is open: read_committed readers of its partitions wait in front of its first record.",
        "PrepareCommit": "Decided: it is committed, whatever happens. Its markers are being written to the partitions.",
        "PrepareAbort": "Decided: it is aborted, whatever happens. Its markers are being written to the partitions.",
        "CompleteCommit": "The last transaction is committed, and visible everywhere. None is open.",
        "CompleteAbort": "The last transaction was aborted, and nothing of it is visible. None is open.",
        "Dead": "The id was not used for transactional.id.expiration.ms and is being forgotten.",
        "PrepareEpochFence": "A producer is being locked out, its transaction will be aborted (Apache Kafka only).",
    }
)
"""Kafka's names, which ListTransactions and DescribeTransactions use."""

UNKNOWN: Final = "A state that this version of oncelog does not know."
