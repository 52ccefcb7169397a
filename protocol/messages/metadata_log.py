"""The records of `__cluster_metadata`: what the broker knows of topics, features and producer ids.

Keyed like the other internal topics: the newest value of a key counts, a null value removes it. Ids from 9100, which
no stock record uses.
"""

from __future__ import annotations

from ..schema import (
    Message,
    Struct,
    array,
    boolean,
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
    """Key of a topic: its id, so that a name can be used again after a deletion."""

    topic_id: bytes = uuid("0")


@struct
class TopicConfigEntry(Struct):
    name: str = string("0+")
    value: str = string("0+")


@record_value(id=9100, versions="0", flexible="0+")
class TopicMetadataValue(Message):
    """A topic: name, number of partitions, configs other than defaults. `deleting`: its files may still be there."""

    name: str = string("0+")
    partitions: int = int32("0+")
    deleting: bool = boolean("0+")
    configs: list[TopicConfigEntry] = array(TopicConfigEntry, "0+")


@record_key(id=9101, versions="0", flexible="none")
class ProducerIdsKey(Message):
    """Key of the producer ids that were handed out, by broker; -1 for all of them."""

    broker_id: int = int32("0", default=-1)


@record_value(id=9101, versions="0", flexible="0+")
class ProducerIdsValue(Message):
    """The first producer id that was never part of a block: durable before a block is used (KIP-730)."""

    next_producer_id: int = int64("0+")


@record_key(id=9102, versions="0", flexible="none")
class FeatureLevelKey(Message):
    """Key of a finalized feature."""

    name: str = string("0")


@record_value(id=9102, versions="0", flexible="0+")
class FeatureLevelValue(Message):
    """The finalized level of a feature (KIP-584)."""

    level: int = int16("0+")


@record_key(id=9103, versions="0", flexible="none")
class BrokerConfigKey(Message):
    """Key of a dynamic broker config."""

    name: str = string("0")


@record_value(id=9103, versions="0", flexible="0+")
class BrokerConfigValue(Message):
    """The value of a dynamic broker config, as text."""

    value: str = string("0+")
