"""Log one line when a background job begins to fail, and one when it succeeds again, however often it was retried.

This module remembers which jobs are failing at the moment. It serves background work that is retried until it succeeds:
checkpoints, unlinks, retention, compaction.
"""

from __future__ import annotations

import structlog

from ...protocol.errors import KafkaError

logger = structlog.get_logger(__name__)


class Episodes:
    """The background jobs that are failing at the moment. Logs when a job begins to fail and when it succeeds again."""

    def __init__(self) -> None:
        self._failing: set[str] = set()

    def failed(self, what: str, error: BaseException) -> None:
        """Log that the job `what` failed, unless it was failing already. Log the traceback of an unexpected error."""
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
        """Log that the job `what` succeeded, if it was failing before."""
        if what in self._failing:
            self._failing.discard(what)
            logger.info("housekeeping succeeded again", what=what)

    def forget(self, what: str) -> None:
        """Forget that the job `what` was failing, because the job is not needed any more."""
        self._failing.discard(what)
