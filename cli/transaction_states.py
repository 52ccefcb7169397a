"""Explain each state of a transactional id, for `oncelog txn` and docs/transactions.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

STATES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Empty": "A producer was initialised with this id, and no transaction is open.",
        "Ongoing": "A transaction is open. In its partitions, read_committed readers wait before its first record.",
        "PrepareCommit": "The commit is final. Its markers are being written to the partitions.",
        "PrepareAbort": "The abort is final. Its markers are being written to the partitions.",
        "CompleteCommit": "The last transaction is committed, and visible everywhere. No transaction is open.",
        "CompleteAbort": "The last transaction is aborted, and its records are invisible. No transaction is open.",
        "Dead": "The id has not been used for transactional.id.expiration.ms and is being deleted.",
        "PrepareEpochFence": "A producer is being fenced, and its transaction will be aborted (Apache Kafka only).",
    }
)
"""The meaning of each state, by the name that ListTransactions and DescribeTransactions use."""

WITHOUT_TRANSACTION: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
"""The states in which no transaction is open."""

UNKNOWN: Final = "A state that this version of oncelog does not know."
