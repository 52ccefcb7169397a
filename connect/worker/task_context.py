"""`TaskContext`: the worker's services for a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..api.offsets import OffsetReader
from ..api.transactions import TransactionContext


@dataclass(frozen=True)
class TaskContext:
    """The `SourceTaskContext` of one task."""

    config: Mapping[str, str]
    offsets: OffsetReader
    transactions: TransactionContext | None
    exactly_once: bool
