"""What the rest of the broker knows of the cluster's metadata: the protocol `Metadata`, and what a topic is.

It is the seam between the broker and where metadata lies. `MetadataStore` keeps it in a log of the data directory; it
may as well lie in a database that many brokers share. Looking never waits: what is looked at is in memory. A change
returns a future that is done when the change is durable and visible to everyone who looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from .topic_names import INTERNAL_TOPICS


@dataclass(slots=True)
class Topic:
    """One topic. `configs` holds its own settings only, as text; `partitions` is their number."""

    name: str
    topic_id: bytes
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)
    deleting: bool = False

    @property
    def is_internal(self) -> bool:
        """Whether it is the broker's own."""
        return self.name in INTERNAL_TOPICS


class Metadata(Protocol):
    """Topics with their settings, feature levels, and producer ids.

    Changes raise KafkaError at once where they are refused, and through the future (KAFKA_STORAGE_ERROR) where they
    cannot be kept. A change goes through even if the one who waits for it is cancelled.
    """

    @property
    def cluster_id(self) -> str: ...

    @property
    def epoch(self) -> int:
        """Grows with every change."""

    # ---- topics

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics by name, without those that are being deleted."""

    @property
    def partition_count(self) -> int:
        """Partitions of all topics, those included that are being created; without those that are being deleted."""

    @property
    def on_topic_changed(self) -> list[Callable[[Topic], None]]:
        """Called when more partitions or other settings of a topic have become visible."""

    @property
    def on_topic_deleted(self) -> list[Callable[[Topic], Awaitable[None] | None]]:
        """Called to drop what belongs to a topic; one with much to drop returns what has to be awaited for it."""

    def topic(self, name: str) -> Topic | None:
        """The topic of that name; None when there is none, or it is being deleted."""

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of that id; None when there is none, or it is being deleted."""

    def newest(self, topic: Topic) -> Topic:
        """The topic after the changes that are still on their way: the base of the next one."""

    def check_new(self, name: str) -> None:
        """Raise TOPIC_ALREADY_EXISTS or INVALID_TOPIC_EXCEPTION where a topic of that name cannot be created."""

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> asyncio.Future[Topic]:
        """Create a topic whose name and settings have been validated; raises as `check_new` does."""

    def change_topic(
        self, topic: Topic, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> asyncio.Future[Topic]:
        """Give a topic more partitions or settings; raises UNKNOWN_TOPIC_OR_PARTITION when it is being deleted."""

    def delete_topic(self, topic: Topic) -> asyncio.Future[Topic]:
        """Delete a topic: done when no client sees it any more and its data is dropped."""

    def deleting(self) -> list[Topic]:
        """Topics whose deletion has begun and not ended."""

    def finish_deletions(self) -> None:
        """Go on with the deletions that a crash interrupted."""

    # ---- the rest

    @property
    def features(self) -> Mapping[str, int]:
        """The finalized level of each feature (KIP-584)."""

    def set_feature(self, name: str, level: int) -> asyncio.Future[None]:
        """Finalize a feature at a level."""

    def allocate_producer_ids(self) -> asyncio.Future[range]:
        """A block of producer ids that nobody else was or will be given."""

    def skip_producer_ids(self, producer_id: int) -> None:
        """Never hand out `producer_id` or a lower one."""
