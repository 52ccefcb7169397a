"""Define the broker's interface to the cluster's metadata: the protocol `Metadata` and the class `Topic`.

The interface separates the broker from the storage of metadata. `MetadataStore` stores it in a log in the data
directory; another implementation could store it in a database that several brokers share. Reads never wait, because
metadata is in memory. A change returns a future that is done when the change is durable and visible to all readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ..acls.acl import Acl
from ..acls.acl_index import AclIndex
from ..quotas.entity import QuotaEntity, QuotaValues
from ..topic_names import INTERNAL_TOPICS

if TYPE_CHECKING:  # imported at its first use, not at start
    from ...auth.scram_credentials import ScramCredential
    from ..security.delegation_token import DelegationToken


@dataclass(slots=True)
class Topic:
    """One topic.

    `configs` contains, as text, only the settings that the topic overrides; `partitions` is the number of its
    partitions.
    """

    name: str
    topic_id: bytes
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)
    deleting: bool = False

    @property
    def is_internal(self) -> bool:
        """Whether the topic is one of the broker's internal topics."""
        return self.name in INTERNAL_TOPICS

    def has_partition(self, index: int) -> bool:
        """Whether the topic has a partition with this index."""
        return 0 <= index < self.partitions


class Metadata(Protocol):
    """The cluster's topics with their settings, credentials, access rules, quotas, feature levels, and producer ids.

    A change that is refused raises KafkaError immediately. A change that cannot be stored raises KAFKA_STORAGE_ERROR
    immediately, or fails its future with this error. A change is completed even if its caller is cancelled.
    """

    @property
    def cluster_id(self) -> str: ...

    @property
    def epoch(self) -> int:
        """The version of the metadata, which grows with every change."""

    # ---- topics

    @property
    def topics(self) -> Mapping[str, Topic]:
        """The topics by name, without those that are being deleted."""

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics. Topics being created are included; topics being deleted are not."""

    @property
    def on_topic_changed(self) -> list[Callable[[Topic], Awaitable[None] | None]]:
        """Callbacks for a topic whose new partitions or settings have become visible.

        A callback may return an awaitable for the rest of its work.
        """

    @property
    def on_topic_deleted(self) -> list[Callable[[Topic], Awaitable[None] | None]]:
        """Callbacks that drop a deleted topic's data. A callback may return an awaitable for the rest of its work."""

    def topic(self, name: str) -> Topic | None:
        """Return the topic with this name, or None if it does not exist or is being deleted."""

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id, or None if it does not exist or is being deleted."""

    def newest(self, topic: Topic) -> Topic:
        """Return the topic with its pending changes applied, as the base of the next change."""

    def check_new(self, name: str) -> None:
        """Raise KafkaError TOPIC_ALREADY_EXISTS or INVALID_TOPIC_EXCEPTION if the topic `name` cannot be created."""

    def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> asyncio.Future[Topic]:
        """Create a topic whose name and settings have been validated; raise as `check_new` does."""

    def change_topic(
        self, topic: Topic, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> asyncio.Future[Topic]:
        """Change a topic's partitions or settings.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic is being deleted.
        """

    def delete_topic(self, topic: Topic) -> asyncio.Future[Topic]:
        """Delete a topic; the future is done when no client can see the topic and its data has been dropped.

        The future is also done if the data cannot be dropped.
        """

    def deleting(self) -> list[Topic]:
        """Return the topics whose deletion is unfinished."""

    def finish_deletions(self) -> None:
        """Resume unfinished deletions when the broker starts.

        Every subscriber must already be in `on_topic_deleted`, because a name becomes free when all subscribers have
        dropped their data.
        """

    # ---- credentials

    @property
    def scram_users(self) -> Mapping[str, Mapping[str, ScramCredential]]:
        """The SCRAM credentials by user and mechanism."""

    def scram_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """Return a user's credential for a SCRAM mechanism, or None."""

    def scram_iterations(self, mechanism: str) -> Mapping[int, int]:
        """Return the number of credentials of a SCRAM mechanism for each iteration count."""

    def has_room_for_user(self, user: str, limit: int) -> bool:
        """Return whether a user may get a credential without exceeding `limit` users, including those being stored."""

    def change_scram_credentials(
        self, user: str, changes: Mapping[str, ScramCredential | None]
    ) -> asyncio.Future[None]:
        """Set a user's credentials by mechanism; None removes a credential.

        The future is done when all changes are durable.
        """

    # ---- delegation tokens

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        """The delegation tokens by id, expired ones included until they are removed."""

    @property
    def delegation_token_count(self) -> int:
        """The number of delegation tokens, including those that are being stored."""

    @property
    def on_delegation_token_changed(self) -> list[Callable[[str], None]]:
        """Callbacks that get the id of a token that was set or removed, once this change is visible."""

    def newest_delegation_token(self, token_id: str) -> DelegationToken | None:
        """Return a token with its pending changes applied, as the base of the next change.

        Return None if the token does not exist, or if its removal is pending.
        """

    def change_delegation_tokens(self, changes: Mapping[str, DelegationToken | None]) -> asyncio.Future[None]:
        """Set tokens by id; None removes a token. The future is done when all changes are durable."""

    # ---- access rules

    @property
    def acls(self) -> AclIndex:
        """The access rules that are in effect."""

    @property
    def acl_count(self) -> int:
        """The number of access rules, including those that are being stored."""

    def create_acls(self, acls: Sequence[Acl]) -> asyncio.Future[None]:
        """Add access rules, some of which may already exist."""

    def delete_acls(self, acls: Sequence[Acl]) -> asyncio.Future[None]:
        """Delete access rules, some of which may already be deleted."""

    # ---- quotas

    @property
    def quotas(self) -> Mapping[QuotaEntity, QuotaValues]:
        """The quotas that are in effect (KIP-546)."""

    @property
    def on_quotas_changed(self) -> list[Callable[[Sequence[QuotaEntity]], None]]:
        """Callbacks that receive the entities whose quotas have changed."""

    def newest_quotas(self, entity: QuotaEntity) -> QuotaValues:
        """Return the quotas of an entity with its pending changes applied, as the base of the next change."""

    def has_room_for_quotas(self, entity: QuotaEntity, limit: int) -> bool:
        """Return whether an entity may get quotas without exceeding `limit` entities, including those being stored."""

    def change_quotas(self, entity: QuotaEntity, values: QuotaValues) -> asyncio.Future[None]:
        """Replace the quotas of an entity; the future is done when they are durable and in effect."""

    # ---- settings of brokers

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]:
        """The settings that were changed while the broker was running (KIP-226), by broker id.

        The broker id "" stands for the settings of all brokers.
        """

    @property
    def on_broker_configs_changed(self) -> list[Callable[[], Awaitable[None] | None]]:
        """Callbacks for changed settings of brokers. A callback may return an awaitable for the rest of its work."""

    def newest_broker_configs(self, broker: str) -> Mapping[str, str]:
        """Return the settings of a broker with its pending changes applied, as the base of the next change."""

    def change_broker_configs(self, broker: str, configs: Mapping[str, str]) -> asyncio.Future[None]:
        """Replace the settings of a broker; the future is done when they are durable and in effect."""

    # ---- features and producer ids

    @property
    def features(self) -> Mapping[str, int]:
        """The finalized level of each feature (KIP-584)."""

    def set_feature(self, name: str, level: int) -> asyncio.Future[None]:
        """Finalize a feature at a level; the future is done when the level is durable."""

    def allocate_producer_ids(self) -> asyncio.Future[range]:
        """Allocate a block of producer ids that is never allocated again."""

    def skip_producer_ids(self, producer_id: int) -> None:
        """Never allocate `producer_id` or a lower id."""
