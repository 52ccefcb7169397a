"""`FailurePolicy`: decides which failures are temporary, and after how many failures the processor ends.

If an output record has made the transaction fail, the failure of the record decides, not the AbortableError.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ..consumer import DeserializationError, RecordCorruptError
from ..errors import (
    AbortableError,
    AuthenticationError,
    AuthorizationError,
    CommitUnknownError,
    ConfigError,
    FatalError,
    IllegalGenerationError,
    IllegalStateError,
    InvalidTopicError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicError,
    UnsupportedVersionError,
)

MAX_FENCES: Final = 5
FENCE_WINDOW_S: Final = 60.0
"""More than MAX_FENCES fatal errors of producers within FENCE_WINDOW_S seconds end the processor.

A transaction that timed out, or a rebalance, fences a producer as well, so a fatal error first leads to a new
initialisation. Without this limit, two processors with the same transactional.id would fence each other forever.
"""
MAX_HOPELESS: Final = 3
"""Maximum number of consecutive aborts because of errors that are not known to be temporary; the next such error is
raised. This is also the maximum number of repeated requests for the result of one commit.
"""
MISSING_PAUSE_S: Final = 60.0
"""If a topic or partition has not been reported as missing for this number of seconds, it has existed meanwhile.

Between two reports, the processor backs off, and processes the records again.
"""

_OF_THE_GROUP: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
_FINAL: Final = (
    AuthenticationError,
    AuthorizationError,
    InvalidTopicError,
    UnknownTopicError,
    UnsupportedVersionError,
    ConfigError,
    IllegalStateError,
    RecordTooLargeError,
    SerializationError,
    DeserializationError,
    RecordCorruptError,
)


class FailurePolicy:
    """Decides after each failure whether to continue. The caller passes the time, in seconds.

    `max_block_s` is how long a producer waits for the metadata of a topic. A partition that does not exist may be added
    within this time.
    """

    def __init__(self, max_block_s: float) -> None:
        self._max_block_s = max_block_s
        self._fences: deque[float] = deque()
        self._hopeless = 0
        self._missing: dict[str, _Missing] = {}

    def succeeded(self) -> None:
        """Record that a transaction was committed."""
        self._hopeless = 0

    def judge(self, error: KafkaError, now: float, *, producers_clean: bool) -> None:
        """Raise `error` if it is final, or if too many errors have occurred (`MAX_FENCES`, `MAX_HOPELESS`), or if the
        same topic or partition has been missing for `max_block_s`.

        `producers_clean`: every transaction of the producers is known to have ended. Then a fatal error comes from the
        consumer and is final. Otherwise it comes from a producer, and is corrected by initialising that producer again.
        """
        origin = _origin(error)
        if isinstance(origin, _FINAL) or (isinstance(error, FatalError) and producers_clean):
            raise origin
        if origin.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._stays_missing(origin.message, now):
            raise origin
        if isinstance(error, FatalError | IllegalGenerationError):
            self._fences.append(now)
            while self._fences[0] < now - FENCE_WINDOW_S:
                self._fences.popleft()
            if len(self._fences) > MAX_FENCES:
                raise error
        elif not (error.retriable or isinstance(error, CommitUnknownError) or error.code in _OF_THE_GROUP):
            self._hopeless += 1
            if self._hopeless > MAX_HOPELESS:
                raise error

    def _stays_missing(self, text: str, now: float) -> bool:
        """Return whether the failure with this text has been repeated for `max_block_s`.

        Successes in between do not count, because they may be those of other partitions.
        """
        pause_s = max(self._max_block_s, MISSING_PAUSE_S)
        recent = {name: one for name, one in self._missing.items() if now - one.last_s <= pause_s}
        known = recent.get(text)
        first_s = now if known is None else known.first_s
        self._missing = {**recent, text: _Missing(first_s, now)}
        return now - first_s >= self._max_block_s


class _Missing(NamedTuple):
    """When the failure that names a missing topic or partition occurred first and last."""

    first_s: float
    last_s: float


def _origin(error: KafkaError) -> KafkaError:
    """Return the failure because of which the transaction can only be aborted, or the error itself."""
    while isinstance(error, AbortableError) and isinstance(error.__cause__, KafkaError):
        error = error.__cause__
    return error
