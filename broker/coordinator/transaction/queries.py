"""DescribeTransactions and ListTransactions: what operators see of transactional ids. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from .metadata import TransactionMetadata
from .state import STATE_BY_LABEL


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """What ListTransactions asks for; an empty collection, a negative duration or no pattern filters nothing."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    transactional_id_pattern: str | None = None

    @property
    def unknown_states(self) -> list[str]:
        """Names that are no state; they match nothing and are reported back."""
        return [name for name in self.states if name not in STATE_BY_LABEL]

    def select(self, known: Iterable[TransactionMetadata], now_ms: int) -> list[TransactionMetadata]:
        """The ids that pass.

        Raises KafkaError INVALID_REGULAR_EXPRESSION; the pattern is RE2 and must match the whole id (KIP-1152).
        """
        states = {STATE_BY_LABEL[name] for name in self.states if name in STATE_BY_LABEL}
        pattern = _compile(self.transactional_id_pattern) if self.transactional_id_pattern else None
        return [
            metadata
            for metadata in known
            if (not self.states or metadata.state in states)
            and (not self.producer_ids or metadata.producer_id in self.producer_ids)
            and (self.duration_ms < 0 or now_ms - metadata.start_timestamp_ms > self.duration_ms)
            and (pattern is None or pattern.fullmatch(metadata.transactional_id))
        ]


def _compile(pattern: str) -> Any:
    import re2  # type: ignore[import-untyped]  # only here: few brokers are ever asked

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 1 << 20
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"transactional id pattern {pattern!r}: {error}"
        ) from None
