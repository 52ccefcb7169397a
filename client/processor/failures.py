"""`FailurePolicy`: decides which failures are temporary, and after how many failures the processor ends."""

from __future__ import annotations

from collections import deque
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..consumer import DeserializationError, RecordCorruptError
from ..errors import (
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
    UnsupportedVersionError,
    ConfigError,
    IllegalStateError,
    RecordTooLargeError,
    SerializationError,
    DeserializationError,
    RecordCorruptError,
)


class FailurePolicy:
    """Decides after each failure whether to continue. The caller passes the time, in seconds."""

    def __init__(self) -> None:
        self._fences: deque[float] = deque()
        self._hopeless = 0

    def succeeded(self) -> None:
        """Record that a transaction was committed."""
        self._hopeless = 0

    def judge(self, error: KafkaError, now: float, *, producers_clean: bool) -> None:
        """Raise `error` if it is final, or if too many errors have occurred (`MAX_FENCES`, `MAX_HOPELESS`).

        `producers_clean`: every transaction of the producers is known to have ended. Then a fatal error comes from the
        consumer and is final. Otherwise it comes from a producer, and is corrected by initialising that producer again.
        """
        if isinstance(error, _FINAL) or (isinstance(error, FatalError) and producers_clean):
            raise error
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
