"""oncelog: a Kafka-compatible broker in one Python process, specialised in exactly-once, and its asyncio client.

`oncelog.sync` has the same clients with blocking methods.

The names below are loaded when they are first used (PEP 562): importing the client does not import the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from . import sync
    from .broker.config import BrokerConfig
    from .broker.embedded import Broker
    from .broker.node import BrokerStartError
    from .client import errors
    from .client.admin import (
        AbortTransactionSpec,
        Admin,
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        FencedProducer,
        GroupClaim,
        GroupDescription,
        GroupListing,
        GroupMember,
        HangingTransaction,
        NewTopic,
        ProducerDescription,
        ResourceType,
        TransactionDescription,
        TransactionListing,
        WhyHanging,
    )
    from .client.config import AdminConfig, ConsumerConfig, Partitioner, ProducerConfig
    from .client.consumer import (
        CommitCallback,
        Consumer,
        ConsumerRecord,
        OffsetAndTimestamp,
        OffsetLike,
        RebalanceListener,
    )
    from .client.consumer.errors import (
        CommitFailedError,
        DeserializationError,
        FencedInstanceError,
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
        RebalanceInProgressError,
        RecordCorruptError,
    )
    from .client.errors import (
        AbortableError,
        AuthorizationError,
        BufferFullError,
        CommitUnknownError,
        ConcurrentProducerCommitError,
        ConfigError,
        CoordinatorError,
        FatalError,
        IllegalGenerationError,
        IllegalStateError,
        InvalidTopicError,
        KafkaError,
        KafkaTimeoutError,
        NetworkError,
        NotKafkaError,
        PartitionNotRegisteredError,
        PendingTransactionError,
        ProducerFencedError,
        RecordTooLargeError,
        RetriableError,
        SerializationError,
        StaleMetadataError,
        TlsError,
        UnknownPartitionError,
        UnknownTopicError,
        UnsupportedVersionError,
    )
    from .client.metadata import Node, PartitionMetadata, TopicMetadata
    from .client.offset_lookup import ListedOffset
    from .client.pool import (
        PooledProducer,
        PooledTransaction,
        PoolExhaustedError,
        PoolStatus,
        TransactionalProducerPool,
    )
    from .client.processor import (
        GroupAware,
        Metrics,
        OutputRecord,
        Process,
        Processor,
        ProcessorTransaction,
        Transform,
        WorkerDiedError,
        WorkerProcesses,
    )
    from .client.producer import Delivery, DeliveryCallback, Producer, Transaction
    from .client.serialization.dataclass_serde import DataclassSerde
    from .client.serialization.protocols import Deserializer, DeserializerLike, Serializer, SerializerLike
    from .client.serialization.serdes import JsonSerde, MsgspecSerde, StringSerde
    from .client.values import (
        ByPartition,
        BytesLike,
        ConsumerAssignment,
        ConsumerGroupMetadata,
        GroupAssignment,
        HeadersLike,
        OffsetAndMetadata,
        Offsets,
        RecordMetadata,
        TopicPartition,
    )
    from .protocol.errors import ErrorCode
    from .protocol.records import Headers, TimestampType

__all__ = [
    "AbortTransactionSpec",
    "AbortableError",
    "Admin",
    "AdminConfig",
    "AuthorizationError",
    "Broker",
    "BrokerConfig",
    "BrokerStartError",
    "BufferFullError",
    "ByPartition",
    "BytesLike",
    "ClusterDescription",
    "CommitCallback",
    "CommitFailedError",
    "CommitUnknownError",
    "ConcurrentProducerCommitError",
    "ConfigEntry",
    "ConfigError",
    "ConfigResource",
    "Consumer",
    "ConsumerAssignment",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "CoordinatorError",
    "DataclassSerde",
    "Delivery",
    "DeliveryCallback",
    "DeserializationError",
    "Deserializer",
    "DeserializerLike",
    "ErrorCode",
    "FatalError",
    "FencedInstanceError",
    "FencedProducer",
    "GroupAssignment",
    "GroupAware",
    "GroupClaim",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "Headers",
    "HeadersLike",
    "IllegalGenerationError",
    "IllegalStateError",
    "InvalidTopicError",
    "JsonSerde",
    "KafkaError",
    "KafkaTimeoutError",
    "ListedOffset",
    "Metrics",
    "MsgspecSerde",
    "NetworkError",
    "NewTopic",
    "NoOffsetForPartitionError",
    "Node",
    "NotKafkaError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetLike",
    "OffsetOutOfRangeError",
    "Offsets",
    "OutputRecord",
    "PartitionMetadata",
    "PartitionNotRegisteredError",
    "Partitioner",
    "PendingTransactionError",
    "PoolExhaustedError",
    "PoolStatus",
    "PooledProducer",
    "PooledTransaction",
    "Process",
    "Processor",
    "ProcessorTransaction",
    "Producer",
    "ProducerConfig",
    "ProducerDescription",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RebalanceListener",
    "RecordCorruptError",
    "RecordMetadata",
    "RecordTooLargeError",
    "ResourceType",
    "RetriableError",
    "SerializationError",
    "Serializer",
    "SerializerLike",
    "StaleMetadataError",
    "StringSerde",
    "TimestampType",
    "TlsError",
    "TopicMetadata",
    "TopicPartition",
    "Transaction",
    "TransactionDescription",
    "TransactionListing",
    "TransactionalProducerPool",
    "Transform",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnsupportedVersionError",
    "WhyHanging",
    "WorkerDiedError",
    "WorkerProcesses",
    "errors",
    "sync",
]

_HOMES: Final = {
    "AbortTransactionSpec": "client.admin",
    "Admin": "client.admin",
    "AdminConfig": "client.config",
    "Broker": "broker.embedded",
    "BrokerConfig": "broker.config",
    "BrokerStartError": "broker.node",
    "ByPartition": "client.values",
    "BytesLike": "client.values",
    "ClusterDescription": "client.admin",
    "CommitCallback": "client.consumer",
    "CommitFailedError": "client.consumer.errors",
    "ConfigEntry": "client.admin",
    "ConfigResource": "client.admin",
    "Consumer": "client.consumer",
    "ConsumerAssignment": "client.values",
    "ConsumerConfig": "client.config",
    "ConsumerGroupMetadata": "client.values",
    "ConsumerRecord": "client.consumer",
    "DataclassSerde": "client.serialization.dataclass_serde",
    "Delivery": "client.producer",
    "DeliveryCallback": "client.producer",
    "DeserializationError": "client.consumer.errors",
    "Deserializer": "client.serialization.protocols",
    "DeserializerLike": "client.serialization.protocols",
    "ErrorCode": "protocol.errors",
    "FencedInstanceError": "client.consumer.errors",
    "FencedProducer": "client.admin",
    "GroupAssignment": "client.values",
    "GroupAware": "client.processor",
    "GroupClaim": "client.admin",
    "GroupDescription": "client.admin",
    "GroupListing": "client.admin",
    "GroupMember": "client.admin",
    "HangingTransaction": "client.admin",
    "Headers": "protocol.records",
    "HeadersLike": "client.values",
    "JsonSerde": "client.serialization.serdes",
    "ListedOffset": "client.offset_lookup",
    "Metrics": "client.processor",
    "MsgspecSerde": "client.serialization.serdes",
    "NewTopic": "client.admin",
    "NoOffsetForPartitionError": "client.consumer.errors",
    "Node": "client.metadata",
    "OffsetAndMetadata": "client.values",
    "OffsetAndTimestamp": "client.consumer",
    "OffsetLike": "client.consumer",
    "OffsetOutOfRangeError": "client.consumer.errors",
    "Offsets": "client.values",
    "OutputRecord": "client.processor",
    "PartitionMetadata": "client.metadata",
    "Partitioner": "client.config",
    "PoolExhaustedError": "client.pool",
    "PoolStatus": "client.pool",
    "PooledProducer": "client.pool",
    "PooledTransaction": "client.pool",
    "Process": "client.processor",
    "Processor": "client.processor",
    "ProcessorTransaction": "client.processor",
    "Producer": "client.producer",
    "ProducerConfig": "client.config",
    "ProducerDescription": "client.admin",
    "RebalanceInProgressError": "client.consumer.errors",
    "RebalanceListener": "client.consumer",
    "RecordCorruptError": "client.consumer.errors",
    "RecordMetadata": "client.values",
    "ResourceType": "client.admin",
    "Serializer": "client.serialization.protocols",
    "SerializerLike": "client.serialization.protocols",
    "StringSerde": "client.serialization.serdes",
    "TimestampType": "protocol.records",
    "TopicMetadata": "client.metadata",
    "TopicPartition": "client.values",
    "Transaction": "client.producer",
    "TransactionDescription": "client.admin",
    "TransactionListing": "client.admin",
    "TransactionalProducerPool": "client.pool",
    "Transform": "client.processor",
    "WhyHanging": "client.admin",
    "WorkerDiedError": "client.processor",
    "WorkerProcesses": "client.processor",
}
"""The module of each public name; those that are not here are errors."""

if not TYPE_CHECKING:  # a type checker that saw it would take every misspelt name for Any

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "errors":
            return import_module(".client.errors", __name__)
        if name == "sync":
            return import_module(".sync", __name__)
        value = getattr(import_module("." + _HOMES.get(name, "client.errors"), __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
