"""Define the records of `__cluster_metadata`, in which the broker keeps topics, features, producer ids, broker
configs, SCRAM credentials, access rules, delegation tokens and quotas.

As in the other internal topics, the newest value of a key applies, and a null value removes the key. The record ids
begin at 9100, which no record of Apache Kafka uses.
"""

from __future__ import annotations

from ..schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    record_key,
    record_value,
    string,
    struct,
    uuid,
)


@record_key(id=9100, versions="0", flexible="none")
class TopicMetadataKey(Message):
    """The key of a topic: its id, because a deleted topic's name can be used again."""

    topic_id: bytes = uuid("0")


@struct
class TopicConfigEntry(Struct):
    name: str = string("0+")
    value: str = string("0+")


@record_value(id=9100, versions="0", flexible="0+")
class TopicMetadataValue(Message):
    """A topic: its name, its number of partitions, and those configs that were set for it. If `deleting` is true, files
    of the deleted topic may still exist.
    """

    name: str = string("0+")
    partitions: int = int32("0+")
    deleting: bool = boolean("0+")
    configs: list[TopicConfigEntry] = array(TopicConfigEntry, "0+")


@record_key(id=9101, versions="0", flexible="none")
class ProducerIdsKey(Message):
    """The key of the producer ids that a broker handed out. Broker id -1 stands for all brokers."""

    broker_id: int = int32("0", default=-1)


@record_value(id=9101, versions="0", flexible="0+")
class ProducerIdsValue(Message):
    """The first producer id after all blocks that were handed out. A new value is on disk before an id of the new block
    is used (KIP-730).
    """

    next_producer_id: int = int64("0+")


@record_key(id=9102, versions="0", flexible="none")
class FeatureLevelKey(Message):
    """The key of a finalized feature."""

    name: str = string("0")


@record_value(id=9102, versions="0", flexible="0+")
class FeatureLevelValue(Message):
    """The finalized level of a feature (KIP-584)."""

    level: int = int16("0+")


@record_key(id=9103, versions="0", flexible="none")
class BrokerConfigKey(Message):
    """The key of a dynamic broker config: the broker's id (empty for all brokers) and the setting's name."""

    broker: str = string("0")
    name: str = string("0")


@record_value(id=9103, versions="0", flexible="0+")
class BrokerConfigValue(Message):
    """The value of a dynamic broker config, as text (KIP-226)."""

    value: str = string("0+")


@record_key(id=9110, versions="0", flexible="none")
class UserScramCredentialKey(Message):
    """The key of a SCRAM credential: the user and the name of the mechanism."""

    user: str = string("0")
    mechanism: str = string("0")


@record_value(id=9110, versions="0", flexible="0+")
class UserScramCredentialValue(Message):
    """The salted keys that the broker stores instead of a user's password (KIP-84, RFC 5802)."""

    salt: bytes = binary("0+")
    iterations: int = int32("0+")
    stored_key: bytes = binary("0+", secret=True)
    server_key: bytes = binary("0+", secret=True)


@record_key(id=9104, versions="0", flexible="none")
class AclKey(Message):
    """The key of an access rule: the whole rule, with Kafka's numbers for types and operations."""

    resource_type: int = int8("0")
    pattern_type: int = int8("0")
    resource_name: str = string("0")
    principal: str = string("0")
    host: str = string("0")
    operation: int = int8("0")
    permission_type: int = int8("0")


@record_value(id=9104, versions="0", flexible="0+")
class AclValue(Message):
    """The value of an access rule that exists. It has no fields yet, because the key is the whole rule."""


@record_key(id=9111, versions="0", flexible="none")
class DelegationTokenKey(Message):
    """The key of a delegation token."""

    token_id: str = string("0")


@record_value(id=9111, versions="0", flexible="0+")
class DelegationTokenValue(Message):
    """A delegation token (KIP-48) without its secret, which the broker computes from its own key.

    Principals have the form `User:alice`. Times are in ms since the epoch.
    """

    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array("string", "0+")
    issue_timestamp: int = int64("0+")
    expiry_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")


@struct
class ClientQuotaEntityPart(Struct):
    """A user, client id or address. A null name stands for the default of the type."""

    entity_type: str = string("0")
    entity_name: str | None = string("0", nullable="0")


@record_key(id=9120, versions="0", flexible="none")
class ClientQuotaKey(Message):
    """The key of an entity's quotas: the parts of the entity, sorted by type (KIP-546)."""

    entity: list[ClientQuotaEntityPart] = array(ClientQuotaEntityPart, "0")


@struct
class ClientQuotaEntry(Struct):
    """One quota and its value."""

    key: str = string("0+")
    value: float = float64("0+")


@record_value(id=9120, versions="0", flexible="0+")
class ClientQuotaValue(Message):
    """All quotas of an entity."""

    quotas: list[ClientQuotaEntry] = array(ClientQuotaEntry, "0+")
