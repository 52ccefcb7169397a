"""Define the protocol's errors: codes, exceptions, and which codes older request versions get instead of newer codes.

One table holds the code, name, retriability and meaning of each error. Exceptions, logs, metrics and docs take their
words from this table. A second table lists the downgrades. When to send which error is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from .schema import Message


class ErrorCode(IntEnum):
    """Kafka's error codes, as of 4.1. `retriable`: whether the request may succeed later. `text`: what went wrong."""

    retriable: bool
    text: str

    def __new__(cls, code: int, retriable: bool = False, text: str = "") -> ErrorCode:
        """Create a member from a row of the table. The member's value is the code alone.

        The defaults exist only so that type checkers accept `ErrorCode(3)`; every row gives all three fields.
        """
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.text = text
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "An unexpected error on the server."
    NONE = 0, False, "Success."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is outside of the partition's log."
    CORRUPT_MESSAGE = 2, True, "The records failed their checksum, or are malformed."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "This broker does not host that topic or partition."
    INVALID_FETCH_SIZE = 4, False, "The fetch size is not valid."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader right now."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead the partition, or is not a replica of it."
    REQUEST_TIMED_OUT = 7, True, "The request was not completed within its timeout."
    BROKER_NOT_AVAILABLE = 8, False, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, "The replica is not available for the partition."
    MESSAGE_TOO_LARGE = 10, False, "The records are larger than the partition accepts."
    STALE_CONTROLLER_EPOCH = 11, False, "The controller has moved to another broker."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The metadata string of the offset is too long."
    NETWORK_EXCEPTION = 13, True, "The connection was lost before the response arrived."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still reading its state from disk."
    COORDINATOR_NOT_AVAILABLE = 15, True, "The coordinator is not available."
    NOT_COORDINATOR = 16, True, "This broker is not the coordinator of that group or transactional id."
    INVALID_TOPIC_EXCEPTION = 17, False, "The topic name is not allowed."
    RECORD_LIST_TOO_LARGE = 18, False, "The record batch is larger than a segment."
    NOT_ENOUGH_REPLICAS = 19, True, "Too few replicas are in sync to accept the records."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, "The records were written, but to too few replicas."
    INVALID_REQUIRED_ACKS = 21, False, "The value of acks is not valid."
    ILLEGAL_GENERATION = 22, False, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The member's protocols do not fit those of the group."
    INVALID_GROUP_ID = 24, False, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member."
    INVALID_SESSION_TIMEOUT = (
        26,
        False,
        "The session timeout is outside of the range that the group coordinator allows.",
    )
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing: join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "Not authorized to access the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "Not authorized to access the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "Not authorized for that cluster operation."
    INVALID_TIMESTAMP = 32, False, "The timestamp of a record is out of the accepted range."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The SASL mechanism is not supported."
    ILLEGAL_SASL_STATE = 34, False, "The request is not allowed in the connection's SASL state."
    UNSUPPORTED_VERSION = 35, False, "The API version is not supported."
    TOPIC_ALREADY_EXISTS = 36, False, "The topic exists already."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is not valid."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The replica assignment is not valid."
    INVALID_CONFIG = 40, False, "A configuration value is not valid."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request is malformed or contradicts itself."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The partition's message format does not support this."
    POLICY_VIOLATION = 44, False, "The request violates a policy."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        False,
        "The sequence number does not follow the last one: records before it are missing.",
    )
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The records with this sequence number were appended already."
    INVALID_PRODUCER_EPOCH = 47, False, "The producer epoch is older than the one that the log or coordinator knows."
    INVALID_TXN_STATE = 48, False, "The operation is not allowed in the transaction's current state."
    INVALID_PRODUCER_ID_MAPPING = 49, False, "The producer id does not belong to that transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, "The transaction timeout is not positive, or exceeds the broker's maximum."
    CONCURRENT_TRANSACTIONS = 51, True, "Another operation on this transactional id is still under way."
    TRANSACTION_COORDINATOR_FENCED = 52, False, "The markers come from a transaction coordinator that was replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Not authorized to use that transactional id."
    SECURITY_DISABLED = 54, False, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = (
        55,
        False,
        "The operation was not attempted, because of an error elsewhere in the request.",
    )
    KAFKA_STORAGE_ERROR = (
        56,
        True,
        "The disk is full, or the partition is offline or read-only. The broker's log names the cause and the remedy.",
    )
    LOG_DIR_NOT_FOUND = 57, False, "The log directory does not exist."
    SASL_AUTHENTICATION_FAILED = 58, False, "SASL authentication failed."
    UNKNOWN_PRODUCER_ID = 59, False, "The partition no longer has any state for the producer id."
    REASSIGNMENT_IN_PROGRESS = 60, False, "A reassignment of the partition is under way."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, False, "The broker has no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, "The delegation token belongs to another principal."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, "Delegation token requests are not allowed on this connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, "Not authorized for that delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, "The principal type is not supported."
    NON_EMPTY_GROUP = 68, False, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "The fetch session does not exist."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The fetch session epoch is not the next one."
    LISTENER_NOT_FOUND = 72, True, "The leader has no endpoint on the listener that the client used."
    TOPIC_DELETION_DISABLED = 73, False, "Deletion of topics is disabled."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        False,
        "The partition or the request's version does not support that compression type.",
    )
    STALE_BROKER_EPOCH = 77, False, "The broker epoch has changed."
    OFFSET_NOT_AVAILABLE = 78, True, "The new leader does not know its high watermark yet."
    MEMBER_ID_REQUIRED = 79, False, "The member must join again with the member id that was assigned to it."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, "The preferred leader is not available."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has reached its maximum number of members."
    FENCED_INSTANCE_ID = 82, False, "Another member took over this group instance id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, "No eligible leader is available."
    ELECTION_NOT_NEEDED = 84, True, "The partition needs no election."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, "The partition has no reassignment under way."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic, so its offsets cannot be deleted."
    INVALID_RECORD = 87, False, "A record failed the broker's validation."
    UNSTABLE_OFFSET_COMMIT = 88, True, "The partition has pending transactional offset commits."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The throttling quota is exceeded."
    PRODUCER_FENCED = 90, False, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, False, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, False, "The resource exists already."
    UNACCEPTABLE_CREDENTIAL = 93, False, "The credential is not acceptable."
    INCONSISTENT_VOTER_SET = 94, False, "The sender and the receiver see different sets of voters."
    INVALID_UPDATE_VERSION = 95, False, "The update version is not valid."
    FEATURE_UPDATE_FAILED = 96, False, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, "The principal of a forwarded request cannot be read."
    SNAPSHOT_NOT_FOUND = 98, False, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, False, "The position is outside of the snapshot."
    UNKNOWN_TOPIC_ID = 100, True, "This broker does not host a topic with that id."
    DUPLICATE_BROKER_REGISTRATION = 101, False, "A broker with that id is registered already."
    BROKER_ID_NOT_REGISTERED = 102, False, "No broker with that id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, "The topic id in the log differs from the one in the request."
    INCONSISTENT_CLUSTER_ID = 104, False, "The cluster id in the request is not this cluster's."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, False, "The replica may not join the in-sync set."
    NEW_LEADER_ELECTED = 108, False, "A new leader was elected while the request was under way."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, "The offset was moved to tiered storage."
    FENCED_MEMBER_EPOCH = (
        110,
        False,
        "The member epoch is fenced: the member must abandon its partitions and join again.",
    )
    UNRELEASED_INSTANCE_ID = 111, False, "Another member of the group still uses this instance id."
    UNSUPPORTED_ASSIGNOR = 112, False, "The group coordinator does not support that assignor."
    STALE_MEMBER_EPOCH = 113, False, "The member epoch is stale: retry with the current one."
    MISMATCHED_ENDPOINT_TYPE = 114, False, "The request was sent to an endpoint of the wrong type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, "The endpoint type is not known."
    UNKNOWN_CONTROLLER_ID = 116, False, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, "The client sent metrics for a subscription that is out of date."
    TELEMETRY_TOO_LARGE = 118, False, "The metrics are larger than the broker accepts."
    INVALID_REGISTRATION = 119, False, "The controller considers the broker registration invalid."
    TRANSACTION_ABORTABLE = 120, False, "An error occurred: abort the transaction, then the producer can continue."
    INVALID_RECORD_STATE = 121, False, "The record is not in a state that allows this acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, True, "The share session does not exist."
    INVALID_SHARE_SESSION_EPOCH = 123, True, "The share session epoch is not the next one."
    FENCED_STATE_EPOCH = 124, False, "The share coordinator fenced an old state epoch."
    INVALID_VOTER_KEY = 125, False, "The voter key does not match the receiver's."
    DUPLICATE_VOTER = 126, False, "The voter is part of the set already."
    VOTER_NOT_FOUND = 127, False, "The voter is not part of the set."
    INVALID_REGULAR_EXPRESSION = 128, False, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, False, "The client's metadata is out of date: bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, False, "The streams topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, "The streams topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, "The streams topology epoch is out of date."
    SHARE_SESSION_LIMIT_REACHED = 133, True, "The limit of share sessions is reached."


CONCURRENT_PRODUCER_COMMIT: Final = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
"""85, only for clients that know the wire extension: another producer claimed the partition with a newer generation."""

PENDING_TRANSACTION: Final = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
"""86, only for clients that know the wire extension: the partition has pending transactional offset commits."""

_EXTENSION_NAMES: Final = {
    CONCURRENT_PRODUCER_COMMIT: "CONCURRENT_PRODUCER_COMMIT",
    PENDING_TRANSACTION: "PENDING_TRANSACTION",
}


def extension_name(code: ErrorCode) -> str:
    """Return the name of a code in the extension's APIs, where codes 85 and 86 have other meanings than in Kafka."""
    return _EXTENSION_NAMES.get(code, code.name)


_BY_CODE: Final = {int(code): code for code in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """Return the member for a code from the wire, or UNKNOWN_SERVER_ERROR if the table does not have the code."""
    return _BY_CODE.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


LONGEST_MESSAGE: Final = 8_000
"""Maximum number of characters of an error message. At four bytes each, they fit into a string of the protocol (32,767
bytes).
"""


class KafkaError(Exception):
    """The failure of a whole request. `message` says what failed and where, and names the remedy if one exists.

    A message longer than LONGEST_MESSAGE is cut, because it may quote a long name from the request.
    """

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = error_code(code)
        self.message = message or self.code.text
        if len(self.message) > LONGEST_MESSAGE:
            self.message = f"{self.message[: LONGEST_MESSAGE - 3]}..."
        super().__init__(self.code, self.message)

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code.retriable

    def anew(self) -> Self:
        """Return an equal error that was never raised, to be raised in place of an error that is stored.

        Each raise of the same object adds frames to its traceback, and the frames keep their requests in memory.
        """
        error = copy(self)
        if self.__cause__ is not None:
            error.__cause__ = self.__cause__
        return error

    def __reduce__(self) -> tuple[Any, ...]:
        """Let `copy` and `pickle` make the error without its `__init__`, whose parameters depend on the class."""
        return _bare, (type(self), self.args), self.__dict__


def _bare(kind: type[KafkaError], args: tuple[Any, ...]) -> KafkaError:
    return kind.__new__(kind, *args)


class CodecError(ValueError):
    """An error while a message was encoded or decoded."""


class EncodeError(CodecError):
    """The message contains a value of the wrong type or range, or a value that this version cannot carry."""


class AnswerTooLarge(EncodeError):
    """The encoded message has more bytes than the caller allows."""


class DecodeError(CodecError):
    """The bytes are not a message of this class and version. `position` is the byte at which decoding failed."""

    def __init__(self, message: str, position: int = -1) -> None:
        super().__init__(f"{message} (at byte {position})" if position >= 0 else message)
        self.position = position


class MalformedTag(DecodeError):
    """Only the value of a known tagged field of the extension (`tag`, 9000 or above) is malformed.

    The rest of the frame is valid, so the broker answers the request with INVALID_REQUEST and keeps the connection
    open. `decode` and `decode_from` set `partial` to the message in which all fields of the extension are left raw.
    Other functions leave it None.
    """

    def __init__(self, message: str, position: int = -1, tag: int = -1) -> None:
        super().__init__(message, position)
        self.tag = tag
        self.partial: Message | None = None


class UnsupportedVersion(EncodeError, DecodeError):
    """The message's definition has no such version."""

    def __init__(self, message: str, version: int = -1) -> None:
        DecodeError.__init__(self, message)
        self.version = version


# (API key, code) → (first request version that knows the code, the code that older versions get). If a pair is
# missing, every version gets the code itself. The KIPs that introduced the codes: KIP-588 PRODUCER_FENCED, KIP-890
# TRANSACTION_ABORTABLE, KIP-112 KAFKA_STORAGE_ERROR, KIP-345 FENCED_INSTANCE_ID, KIP-447 UNSTABLE_OFFSET_COMMIT,
# KIP-207 OFFSET_NOT_AVAILABLE, KIP-848 STALE_MEMBER_EPOCH. No version of Produce knows PRODUCER_FENCED or a
# coordinator's errors. In place of the latter it has NOT_ENOUGH_REPLICAS, which clients retry without refreshing their
# metadata. TxnOffsetCommit below v5 has COORDINATOR_NOT_AVAILABLE in place of CONCURRENT_TRANSACTIONS, because the
# latter would end producers of Kafka's Java client before 3.8 and of aiokafka. Clients of TxnOffsetCommit
# v0-1 crash on COORDINATOR_LOAD_IN_PROGRESS. If a commit is impossible, EndTxn below v4 has UNKNOWN_PRODUCER_ID, after
# which programs with Kafka's Java client or librdkafka can abort the transaction. INVALID_TXN_STATE would end their
# producers.
_NEVER: Final = 1 << 15
_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA, _OFFSET_COMMIT, _OFFSET_FETCH = 0, 1, 2, 3, 8, 9
_FIND_COORDINATOR, _JOIN_GROUP, _HEARTBEAT, _LEAVE_GROUP, _SYNC_GROUP, _DELETE_TOPICS = 10, 11, 12, 13, 14, 20
_INIT_PRODUCER_ID, _ADD_PARTITIONS_TO_TXN, _ADD_OFFSETS_TO_TXN, _END_TXN, _TXN_OFFSET_COMMIT = 22, 24, 25, 26, 28


def _downgrades() -> dict[tuple[int, int], tuple[int, ErrorCode]]:
    """Return the downgrade table as {(API key, code): (first version that knows the code, older code)}."""
    E = ErrorCode
    rows: tuple[tuple[ErrorCode, ErrorCode, dict[int, int]], ...] = (
        (
            E.PRODUCER_FENCED,
            E.INVALID_PRODUCER_EPOCH,
            {
                _PRODUCE: _NEVER,
                _INIT_PRODUCER_ID: 4,
                _ADD_PARTITIONS_TO_TXN: 2,
                _ADD_OFFSETS_TO_TXN: 2,
                _END_TXN: 2,
                _TXN_OFFSET_COMMIT: 3,
            },
        ),
        (
            E.TRANSACTION_ABORTABLE,
            E.INVALID_TXN_STATE,
            {
                _PRODUCE: 11,
                _FIND_COORDINATOR: 5,
                _INIT_PRODUCER_ID: 5,
                _ADD_PARTITIONS_TO_TXN: 5,
                _ADD_OFFSETS_TO_TXN: 4,
                _TXN_OFFSET_COMMIT: 4,
            },
        ),
        (E.TRANSACTION_ABORTABLE, E.UNKNOWN_PRODUCER_ID, {_END_TXN: 4}),
        (E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER, {_PRODUCE: 4, _FETCH: 6}),
        (
            E.FENCED_INSTANCE_ID,
            E.UNKNOWN_MEMBER_ID,
            {_OFFSET_COMMIT: 7, _JOIN_GROUP: 5, _HEARTBEAT: 3, _LEAVE_GROUP: 3, _SYNC_GROUP: 3, _TXN_OFFSET_COMMIT: 3},
        ),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, {_TXN_OFFSET_COMMIT: 2}),
        (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_ENOUGH_REPLICAS, {_PRODUCE: _NEVER}),
        (E.COORDINATOR_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS, {_PRODUCE: _NEVER}),
        (E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS, {_PRODUCE: _NEVER}),
        (E.NETWORK_EXCEPTION, E.NOT_ENOUGH_REPLICAS, {_PRODUCE: _NEVER}),
        (E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS, {_PRODUCE: 12}),
        (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_NOT_AVAILABLE, {_TXN_OFFSET_COMMIT: 5}),
        (E.UNSTABLE_OFFSET_COMMIT, E.COORDINATOR_LOAD_IN_PROGRESS, {_OFFSET_FETCH: 7}),
        (E.OFFSET_NOT_AVAILABLE, E.LEADER_NOT_AVAILABLE, {_LIST_OFFSETS: 5}),
        (E.LISTENER_NOT_FOUND, E.LEADER_NOT_AVAILABLE, {_METADATA: 6}),
        (E.TOPIC_DELETION_DISABLED, E.INVALID_REQUEST, {_DELETE_TOPICS: 3}),
        (E.STALE_MEMBER_EPOCH, E.UNSUPPORTED_VERSION, {_OFFSET_COMMIT: 9, _OFFSET_FETCH: 9}),
    )
    return {
        (api_key, int(code)): (since, older) for code, older, versions in rows for api_key, since in versions.items()
    }


_DOWNGRADES: Final = _downgrades()


def downgrade(code: int, api_key: int, version: int) -> ErrorCode:
    """Return `code`, or the older code to send instead if this version of the API does not know `code`."""
    rule = _DOWNGRADES.get((api_key, int(code)))
    return rule[1] if rule is not None and version < rule[0] else error_code(code)


def downgrades() -> Iterator[tuple[int, ErrorCode, int, ErrorCode]]:
    """Yield the downgrade table as (API key, code, first version that knows the code, code that older versions get)."""
    for (api_key, code), (since, older) in sorted(_DOWNGRADES.items()):
        yield api_key, error_code(code), since, older
