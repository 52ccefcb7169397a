"""`TopicTracker`: reports the topics that a task has written to (KIP-558)."""

from __future__ import annotations

from collections.abc import Callable, Container

from ...client.producer.batch import Delivery


class TopicTracker:
    """Reports each topic once one of the task's records is written to it, as Kafka Connect does.

    `used` is called with a topic that is not in `listed`: a new topic, or one that a user's reset has removed from
    `listed`. A topic whose records are refused is not reported.
    """

    def __init__(self, used: Callable[[str], None], listed: Container[str]) -> None:
        """Set up the tracker; `listed` is a live view of the names of the topics that are known to be in use."""
        self._used, self._listed = used, listed
        self._pending: set[str] = set()
        """The topics with a record whose outcome decides whether they are reported."""

    def sent(self, topic: str, delivery: Delivery) -> None:
        """Report the topic once the record is written, unless it is listed or awaits the outcome of another record."""
        if topic not in self._listed and topic not in self._pending:
            self._pending.add(topic)
            delivery.when_done(lambda written: self._done(topic, written))

    def _done(self, topic: str, written: bool) -> None:
        self._pending.discard(topic)
        if written:
            self._used(topic)
