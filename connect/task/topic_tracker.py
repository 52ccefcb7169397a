"""`TopicTracker`: reports the topics that a task has written to (KIP-558)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from typing import Final

from ...client.producer.batch import Delivery

_WATCHED: Final = 1_000
"""The largest number of a topic's records whose outcomes are awaited at the same time: each takes more than 1 kB."""


class TopicTracker:
    """Reports each topic once one of the task's records is written to it, as Kafka Connect does.

    `used` is called with a topic that is not in `listed`: a new topic, or one that a user's reset has removed from
    `listed`. A topic whose records are refused is not reported.
    """

    def __init__(self, used: Callable[[str], None], listed: Container[str]) -> None:
        """Set up the tracker; `listed` is a live view of the names of the topics that are known to be in use."""
        self._used, self._listed = used, listed
        self._watched: Counter[str] = Counter()
        """The number of records of each topic whose outcomes decide whether the topic is reported."""

    def sent(self, topic: str, delivery: Delivery) -> None:
        """Report the topic once the record is written, unless the topic is already known to be in use."""
        if topic not in self._listed and self._watched[topic] < _WATCHED:
            self._watched[topic] += 1
            delivery.when_done(lambda written: self._done(topic, written))

    def _done(self, topic: str, written: bool) -> None:
        self._watched[topic] -= 1
        if written and topic not in self._listed:
            self._used(topic)
