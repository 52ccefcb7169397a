"""oncelog: a Kafka-compatible broker in one Python process, specialised in exactly-once, and its asyncio client.

The names below are loaded when they are first used (PEP 562): importing the client does not import the broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .broker.broker import Broker
    from .client import errors
    from .client.admin import Admin, NewTopic
    from .client.consumer import Consumer, ConsumerRecord, OffsetAndTimestamp, RebalanceListener
    from .client.errors import (
        AbortableError,
        AuthorizationError,
        BufferFullError,
        CommitUnknownError,
        ConcurrentProducerCommitError,
        ConfigError,
        FatalError,
        IllegalGenerationError,
        IllegalStateError,
        InvalidTopicError,
        KafkaError,
        KafkaTimeoutError,
        NetworkError,
        PartitionNotRegisteredError,
        PendingTransactionError,
        ProducerFencedError,
        RecordTooLargeError,
        RetriableError,
        UnsupportedVersionError,
    )
    from .client.pool import PoolExhaustedError, TransactionalProducerPool
    from .client.processor import OutputRecord, Processor, ProcessorTransaction
    from .client.producer import Delivery, Producer, Transaction
    from .client.values import (
        ConsumerAssignment,
        ConsumerGroupMetadata,
        GroupAssignment,
        OffsetAndMetadata,
        RecordMetadata,
        TopicPartition,
    )

__all__ = [
    "AbortableError",
    "Admin",
    "AuthorizationError",
    "Broker",
    "BufferFullError",
    "CommitUnknownError",
    "ConcurrentProducerCommitError",
    "ConfigError",
    "Consumer",
    "ConsumerAssignment",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "Delivery",
    "FatalError",
    "GroupAssignment",
    "IllegalGenerationError",
    "IllegalStateError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "NetworkError",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OutputRecord",
    "PartitionNotRegisteredError",
    "PendingTransactionError",
    "PoolExhaustedError",
    "Processor",
    "ProcessorTransaction",
    "Producer",
    "ProducerFencedError",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLargeError",
    "RetriableError",
    "TopicPartition",
    "Transaction",
    "TransactionalProducerPool",
    "UnsupportedVersionError",
    "errors",
]

_HOMES: Final = {
    "Admin": "client.admin",
    "Broker": "broker.broker",
    "Consumer": "client.consumer",
    "ConsumerAssignment": "client.values",
    "ConsumerGroupMetadata": "client.values",
    "ConsumerRecord": "client.consumer",
    "Delivery": "client.producer",
    "GroupAssignment": "client.values",
    "NewTopic": "client.admin",
    "OffsetAndMetadata": "client.values",
    "OffsetAndTimestamp": "client.consumer",
    "OutputRecord": "client.processor",
    "PoolExhaustedError": "client.pool",
    "Processor": "client.processor",
    "ProcessorTransaction": "client.processor",
    "Producer": "client.producer",
    "RebalanceListener": "client.consumer",
    "RecordMetadata": "client.values",
    "TopicPartition": "client.values",
    "Transaction": "client.producer",
    "TransactionalProducerPool": "client.pool",
}
"""The module of each public name; those that are not here are errors."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "errors":
        return import_module(".client.errors", __name__)
    value = getattr(import_module("." + _HOMES.get(name, "client.errors"), __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
