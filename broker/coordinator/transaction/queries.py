"""Filters transactional ids for ListTransactions. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from ....protocol.errors import ErrorCode, KafkaError
from ...scheduling.steps import Steps
from .metadata import TransactionMetadata
from .state import STATE_BY_LABEL

_MATCHER_BYTES: Final = 8 << 20
"""The memory in bytes that RE2 may use for one pattern. With less, it uses an algorithm that is ten times slower."""

_BYTES_PER_INSTRUCTION: Final = 64
_LEAST_BYTES: Final = 64 << 10
"""RE2 compiles any pattern of n instructions in _LEAST_BYTES + n * _BYTES_PER_INSTRUCTION bytes of memory."""

_STEPS_PER_UNIT: Final = 1000
"""RE2's speed: the product of instructions and characters that it processes in about a microsecond."""

_SHOWN: Final = 100
"""How many characters of a refused pattern the error message shows."""


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """The filter of a ListTransactions request.

    An empty collection, a negative duration or a missing pattern matches all transactional ids. A name in `states` that
    is not a state of a transaction matches none.
    """

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    transactional_id_pattern: str | None = None

    def select(
        self, known: Iterable[TransactionMetadata], now_ms: int, max_pattern_size: int
    ) -> Steps[list[TransactionMetadata]]:
        """Return, in steps, the values of the transactional ids that match. There may be very many of them.

        The pattern is RE2 and must match the whole transactional id (KIP-1152). Raise KafkaError
        INVALID_REGULAR_EXPRESSION if the pattern is invalid or too large.
        """
        states = {state for name, state in STATE_BY_LABEL.items() if name in self.states}
        pattern = (
            compile_pattern(self.transactional_id_pattern, max_pattern_size) if self.transactional_id_pattern else None
        )
        size = 0 if pattern is None else pattern.programsize
        passed = []
        for metadata in known:
            units = 1
            if (
                (not self.states or metadata.state in states)
                and (not self.producer_ids or metadata.producer_id in self.producer_ids)
                and (self.duration_ms < 0 or now_ms - metadata.start_timestamp_ms > self.duration_ms)
            ):
                if pattern is not None:
                    units += 2 + size * len(metadata.transactional_id) // _STEPS_PER_UNIT
                if pattern is None or pattern.fullmatch(metadata.transactional_id):
                    passed.append(metadata)
            yield units
        return passed


def compile_pattern(pattern: str, max_size: int) -> Any:
    """Compile an RE2 pattern of at most `max_size` characters and `max_size` instructions.

    The instructions are limited because RE2's time is proportional to instructions × characters, and a short pattern
    may have very many of them: `((a{1,30}){1,30})` has 1,800. The pattern is first compiled in little memory, so that
    RE2 gives up early if it is too large.

    Raise KafkaError INVALID_REGULAR_EXPRESSION if the pattern is invalid or too large.
    """
    import re2  # type: ignore[import-untyped]  # imported here because few brokers need it

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        if len(pattern) > max_size:
            raise re2.error(f"it has {len(pattern)} characters")
        options.max_mem = min(_LEAST_BYTES + max_size * _BYTES_PER_INSTRUCTION, _MATCHER_BYTES)
        re2.compile(pattern, options)
        options.max_mem = _MATCHER_BYTES
        compiled = re2.compile(pattern, options)
        if compiled.programsize > max_size:
            raise re2.error(f"it has {compiled.programsize} instructions when compiled")
    except re2.error as error:
        shown = pattern if len(pattern) <= _SHOWN else f"{pattern[:_SHOWN]}..."
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The transactional id pattern {shown!r} is invalid or too large: {error}. It may have at most"
            f" transactional.id.pattern.max.size = {max_size} characters, and as many instructions.",
        ) from None
    return compiled
