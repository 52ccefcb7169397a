"""One log line when something begins to fail, one when it works again, however often it is tried between.

Owns which things fail at the moment. For work behind the scenes that is tried again until it succeeds: checkpoints,
unlinks, retention, compaction.
"""

from __future__ import annotations

import structlog

from ...protocol.errors import KafkaError

logger = structlog.get_logger(__name__)


class Episodes:
    """What fails at the moment, by name."""

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def failed(self, what: str, error: BaseException) -> None:
        """`what` failed; logged if it had not failed before, with a traceback if the error is unexpected."""
        if what not in self._failing:
            self._failing.add(what)
            expected = isinstance(error, OSError | KafkaError)
            logger.warning(
                "housekeeping failed",
                what=what,
                error=str(error) if expected else repr(error),
                remedy="none: it is tried again",
                **({} if expected else {"exc_info": error}),
            )

    def succeeded(self, what: str) -> None:
        """`what` worked; logged if it had failed before."""
        if what in self._failing:
            self._failing.discard(what)
            logger.info("housekeeping succeeded again", what=what)
