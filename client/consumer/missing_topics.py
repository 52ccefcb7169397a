"""`MissingTopics`: reports wanted topics that the cluster does not have, or that the consumer may not read.

A topic that does not exist may be created later. So the consumer continues, as Kafka's consumer does. It logs a warning
when it first finds the topic missing, and again every REPEAT_S seconds. An invalid name, or a topic without read
permission, does not become readable by itself, so the next poll raises the error.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..errors import error_for
from ..metadata import ClusterMetadata

log = logging.getLogger(__name__)

REPEAT_S: Final = 60.0
"""Seconds between two warnings about the same problem."""


def is_missing(metadata: ClusterMetadata, name: str) -> bool:
    """Return whether the cluster has reported that a topic does not exist."""
    topic = metadata.topics.get(name)
    return topic is not None and topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class MissingTopics:
    """Reports wanted topics that are missing. The caller passes the time, in seconds."""

    def __init__(self, auto_create: bool) -> None:
        self._hint = (
            "; the broker did not create it (auto.create.topics.enable)"
            if auto_create
            else "; this consumer does not let it be created (allow.auto.create.topics=false)"
        )
        self._said: dict[str, float] = {}
        self._failures: dict[str, KafkaError] = {}

    def look(self, metadata: ClusterMetadata, wanted: Collection[str], now: float) -> None:
        """Find the wanted topics that are missing from a new metadata snapshot, and log those that do not exist."""
        self._failures.clear()
        for name in [*self._said]:
            if name not in wanted or not self._code(metadata, name):
                del self._said[name]
        for name in sorted(wanted):
            code = self._code(metadata, name)
            if is_missing(metadata, name):
                if name not in self._said or now - self._said[name] >= REPEAT_S:
                    self._said[name] = now
                    log.warning("topic %s does not exist and will be read when it is created%s", name, self._hint)
            elif code and not code.retriable:
                self._failures[name] = error_for(code, f"topic {name!r}: {code.text}")

    def raise_failure(self, wanted: Collection[str]) -> None:
        """If a wanted topic cannot be read, raise the error that says why, at most once for each metadata snapshot."""
        if not self._failures:
            return
        failures, self._failures = self._failures, {}
        for name, failure in failures.items():
            if name in wanted:
                raise failure

    @staticmethod
    def _code(metadata: ClusterMetadata, name: str) -> ErrorCode | None:
        topic = metadata.topics.get(name)
        return topic.error_code if topic is not None and topic.error_code else None
