"""The client's exceptions. The type of an exception says what the caller should do, and `remedy` says it in words.

All are `KafkaError`s and keep the error `code` from which they were made. `error_for` maps codes to types.

| type | what to do |
|---|---|
| `RetriableError` | call again later; includes `KafkaTimeoutError` and `NetworkError` |
| `AbortableError` | abort the transaction and run it again; the producer stays usable |
| `FatalError` | close the client and make a new one |
| `ProducerFencedError` | a `FatalError`: if a newer producer does the work, close this one, else initialise again |
| `AuthenticationError` | a `FatalError`: correct the credentials, then make a new client |
| `ConcurrentProducerCommitError` | a `FatalError`: get the group's current assignment, then initialise again |
| `CommitUnknownError` | learn the outcome first: call `commit_transaction()` again, or read what was committed |
| `UnknownTopicError` | create the topic, or correct its name; a `KafkaTimeoutError` |
| others | correct the problem that the message names |
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeVar

from ..protocol.errors import CONCURRENT_PRODUCER_COMMIT, PENDING_TRANSACTION, ErrorCode, KafkaError, error_code
from ..settings import ConfigError

__all__ = [
    "AbortableError",
    "AuthenticationError",
    "AuthorizationError",
    "BufferFullError",
    "CommitUnknownError",
    "ConcurrentProducerCommitError",
    "ConfigError",
    "CoordinatorError",
    "ErrorCode",
    "FatalError",
    "IllegalGenerationError",
    "IllegalStateError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "NetworkError",
    "NotKafkaError",
    "PartitionNotRegisteredError",
    "PendingTransactionError",
    "ProducerFencedError",
    "RecordTooLargeError",
    "RetriableError",
    "SerializationError",
    "StaleMetadataError",
    "TlsError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnsupportedVersionError",
    "copy_of",
    "error_for",
]


class _Client(KafkaError):
    """A KafkaError whose text ends with a remedy."""

    remedy: ClassVar[str] = ""

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text} ({self.remedy})" if self.remedy else text


class RetriableError(_Client):
    """The call failed, and may succeed when it is repeated later."""

    remedy = "call again later"


class NetworkError(RetriableError):
    """The client could not connect, or lost the connection before the response arrived. The broker may have executed
    the request.
    """

    remedy = "the client reconnects automatically; call again later"


class NotKafkaError(NetworkError):
    """The server at this address does not use Kafka's protocol, or expects TLS."""

    remedy = "correct security.protocol, or the address, which must be that of a Kafka broker's listener"


class TlsError(NetworkError):
    """The TLS handshake with a broker failed, for example because one side does not trust the other's certificate."""

    remedy = (
        "check security.protocol and the address, that ssl.ca.location names the authority that signed the broker's "
        "certificate, that the certificate contains the address's host name, and that the broker trusts the client's "
        "certificate, if it demands one"
    )


class KafkaTimeoutError(RetriableError, TimeoutError):
    """No response arrived within the time that the message names. The broker may have executed the request."""

    remedy = "call again later, or raise the timeout that the message names"


class PendingTransactionError(KafkaTimeoutError):
    """The committed offsets are not known yet, because a transaction that commits offsets of these partitions has not
    ended.

    The consumer waits for the end of the transaction automatically. It raises this error when the call's timeout has
    passed.
    """

    remedy = "call again later: the transaction ends by its timeout at the latest"

    def __str__(self) -> str:
        return _with_name(super().__str__(), PENDING_TRANSACTION, "PENDING_TRANSACTION")

    @property
    def retriable(self) -> bool:
        """Whether a later call may succeed. This is always true, because the transaction ends by its timeout at the
        latest.
        """
        return True


class UnknownTopicError(KafkaTimeoutError):
    """The topic does not exist, and was not created while the call waited."""

    remedy = "create the topic, correct its name, or set auto.create.topics.enable=true at the broker"


class StaleMetadataError(RetriableError):
    """The broker does not lead the partition, or does not know the topic yet. The client refreshes its metadata."""


class UnknownPartitionError(StaleMetadataError):
    """According to the client's metadata, the topic has no partition with this number. The client refreshes its
    metadata.
    """

    remedy = "correct the partition's number, or add partitions to the topic"


class CoordinatorError(RetriableError):
    """The coordinator has moved, is loading its state, or is not available."""


class AbortableError(_Client):
    """The transaction can only be aborted."""

    remedy = "abort the transaction and run it again; the producer stays usable"


class FatalError(_Client):
    """This client cannot be used any more."""

    remedy = "close this client and make a new one"


class AuthenticationError(FatalError):
    """A login failed: the broker refused the credentials or the SASL mechanism, or did not prove that it knows the
    user.
    """

    remedy = "correct the sasl.* settings or the broker's users, then make a new client"


class ProducerFencedError(FatalError):
    """This producer was fenced, and its open transaction is aborted.

    Usually, a newer producer with the same transactional.id has taken over. The transaction may also have exceeded
    transaction.timeout.ms, or an operator has fenced the producer.
    """

    remedy = "if a newer producer does the work, close this one; otherwise take over again with init_transactions()"


class ConcurrentProducerCommitError(FatalError):
    """Another producer owns the partitions, with a newer generation of the group. So this producer cannot commit their
    offsets.

    No part of the transaction is committed: the coordinator aborts it.
    """

    remedy = (
        "stop processing these partitions and call poll(), so that the consumer takes the group's current assignment; "
        "then init_transactions(consumer.group_assignment()), and continue from the committed offsets"
    )

    def __str__(self) -> str:
        return _with_name(super().__str__(), CONCURRENT_PRODUCER_COMMIT, "CONCURRENT_PRODUCER_COMMIT")


class IllegalGenerationError(_Client):
    """The assignment given to init_transactions does not belong to the group's current generation, or another producer
    of the same generation keeps claiming the partitions. The producer is not initialised.
    """

    remedy = (
        "call poll() until the consumer has the current assignment, then init_transactions(consumer.group_assignment())"
    )


class CommitUnknownError(_Client):
    """The commit was requested, but no response arrived.

    The transaction is committed or aborted as a whole, or it is still open and will be aborted after its timeout.

    If `can_ask_again` is true, call `commit_transaction()` again to learn the result. Otherwise, read the topics to
    see whether the transaction's records are there. In consume-transform-produce the group's committed offsets show the
    result.
    """

    def __init__(self, code: int, message: str | None = None, can_ask_again: bool = True) -> None:
        super().__init__(code, message)
        self.can_ask_again = can_ask_again

    def __str__(self) -> str:
        learn = "call commit_transaction() again" if self.can_ask_again else "read what was committed"
        return (
            f"the result of the commit is not known: {super().__str__()} "
            f"({learn} to learn it; do not run the transaction again until then)"
        )


class UnsupportedVersionError(FatalError):
    """The broker does not offer the API, or offers no version of it that this client supports."""

    remedy = "use a broker or a configuration that has the feature"


class AuthorizationError(_Client):
    """The principal is not authorized for this operation."""

    remedy = "grant the missing right, which the broker's log names, or use another principal"


class InvalidTopicError(_Client, ValueError):
    """The topic name is not allowed, or the topic does not exist and is not created automatically."""

    remedy = "correct the topic's name, or create it"


class RecordTooLargeError(_Client):
    """The record is larger than max.request.size, buffer.memory or the topic's max.message.bytes allow."""

    remedy = "send a smaller record, or raise the limit that the message names"


class SerializationError(_Client):
    """A key or value could not be serialized. Nothing was sent: the call that sends the record raises this error.

    `topic` is the record's topic, `part` is key or value. The serializer's own exception is the `__cause__`.
    """

    def __init__(self, topic: str, part: str, reason: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"the {part} of a record for topic {topic!r} {reason}")
        self.topic = topic
        self.part = part

    def __str__(self) -> str:
        return self.message


class BufferFullError(RetriableError):
    """The record was not accepted, because unacknowledged records fill buffer.memory."""

    remedy = "use `await enqueue(...)`, which waits for room, or raise buffer.memory"


class IllegalStateError(_Client, RuntimeError):
    """The call is not allowed in the client's current state. Correct the program."""

    remedy = ""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)

    def __str__(self) -> str:
        return self.message


class PartitionNotRegisteredError(IllegalStateError):
    """The record was not sent: its partition is not among those given to `begin_transaction(partitions)`."""


def _with_name(text: str, code: ErrorCode, name: str) -> str:
    """Replace Kafka's name of the error code at the beginning of a text with `name`.

    In oncelog's wire extension, some codes have other meanings than in Apache Kafka, and so other names.
    """
    return text.replace(f"{code.name}: ", f"{name}: ", 1)


_E = ErrorCode
_TYPES: Final[dict[ErrorCode, type[KafkaError]]] = {
    _E.NETWORK_EXCEPTION: NetworkError,
    _E.REQUEST_TIMED_OUT: KafkaTimeoutError,
    _E.UNKNOWN_TOPIC_OR_PARTITION: StaleMetadataError,
    _E.LEADER_NOT_AVAILABLE: StaleMetadataError,
    _E.NOT_LEADER_OR_FOLLOWER: StaleMetadataError,
    _E.REPLICA_NOT_AVAILABLE: StaleMetadataError,
    _E.FENCED_LEADER_EPOCH: StaleMetadataError,
    _E.UNKNOWN_LEADER_EPOCH: StaleMetadataError,
    _E.UNKNOWN_TOPIC_ID: StaleMetadataError,
    _E.INCONSISTENT_TOPIC_ID: StaleMetadataError,
    _E.LISTENER_NOT_FOUND: StaleMetadataError,
    _E.KAFKA_STORAGE_ERROR: StaleMetadataError,
    _E.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorError,
    _E.COORDINATOR_NOT_AVAILABLE: CoordinatorError,
    _E.NOT_COORDINATOR: CoordinatorError,
    _E.TRANSACTION_ABORTABLE: AbortableError,
    _E.PRODUCER_FENCED: ProducerFencedError,
    _E.INVALID_PRODUCER_EPOCH: ProducerFencedError,
    _E.INVALID_PRODUCER_ID_MAPPING: FatalError,
    _E.INVALID_TXN_STATE: FatalError,
    _E.TRANSACTION_COORDINATOR_FENCED: FatalError,
    _E.INVALID_TRANSACTION_TIMEOUT: FatalError,
    _E.OUT_OF_ORDER_SEQUENCE_NUMBER: FatalError,
    _E.UNKNOWN_PRODUCER_ID: FatalError,
    _E.UNSUPPORTED_FOR_MESSAGE_FORMAT: FatalError,
    _E.UNSUPPORTED_VERSION: UnsupportedVersionError,
    _E.UNSUPPORTED_SASL_MECHANISM: AuthenticationError,
    _E.ILLEGAL_SASL_STATE: AuthenticationError,
    _E.SASL_AUTHENTICATION_FAILED: AuthenticationError,
    _E.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    _E.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    _E.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    _E.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    _E.INVALID_TOPIC_EXCEPTION: InvalidTopicError,
    _E.MESSAGE_TOO_LARGE: RecordTooLargeError,
    _E.RECORD_LIST_TOO_LARGE: RecordTooLargeError,
}


E = TypeVar("E", bound=KafkaError)


def copy_of(error: E) -> E:
    """Return a copy of an exception, for the caller to raise `from` the original. If the original itself were raised in
    many tasks, it would collect the tracebacks of all of them.
    """
    copy = type(error).__new__(type(error), *error.args)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__dict__.pop("__notes__", None)
    return copy


def error_for(code: int, message: str | None = None) -> KafkaError:
    """Return the exception for the error code of a response.

    The exception's type is that in `_TYPES`. For a code that is not listed there, it is RetriableError if the code is
    retriable, else KafkaError.
    """
    known = error_code(code)
    kind = _TYPES.get(known)
    if kind is None:
        kind = RetriableError if known.retriable else KafkaError
    return kind(code, message)
