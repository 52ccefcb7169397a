"""Which failures a processor goes on after."""

from __future__ import annotations

import pytest
from oncelog.client.errors import (
    AbortableError,
    AuthorizationError,
    CommitUnknownError,
    ConcurrentProducerCommitError,
    ErrorCode,
    FatalError,
    IllegalGenerationError,
    KafkaError,
    NetworkError,
    ProducerFencedError,
    RecordTooLargeError,
    UnknownPartitionError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from oncelog.client.processor.failures import FENCE_WINDOW_S, MAX_FENCES, MAX_HOPELESS, FailurePolicy

PASSES = [
    NetworkError(ErrorCode.NETWORK_EXCEPTION),
    CommitUnknownError(ErrorCode.REQUEST_TIMED_OUT),
    AbortableError(ErrorCode.ILLEGAL_GENERATION),
    AbortableError(ErrorCode.UNKNOWN_MEMBER_ID),
    AbortableError(ErrorCode.REBALANCE_IN_PROGRESS),
    AbortableError(ErrorCode.TRANSACTION_ABORTABLE),
]


@pytest.mark.parametrize("error", PASSES, ids=lambda error: error.code.name)
def test_what_passes_by_itself_passes_for_ever(error: KafkaError) -> None:
    policy = FailurePolicy(60.0)
    for _ in range(100):
        policy.judge(error, 0.0, producers_clean=False)


@pytest.mark.parametrize("kind", [AuthorizationError, UnsupportedVersionError])
def test_what_no_retry_mends_is_raised_at_once(kind: type[KafkaError]) -> None:
    with pytest.raises(kind):
        FailurePolicy(60.0).judge(kind(ErrorCode.UNSUPPORTED_VERSION), 0.0, producers_clean=False)


@pytest.mark.parametrize(
    "error",
    [
        ProducerFencedError(ErrorCode.PRODUCER_FENCED),
        ConcurrentProducerCommitError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        IllegalGenerationError(ErrorCode.ILLEGAL_GENERATION),
        FatalError(ErrorCode.INVALID_TXN_STATE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_producer_that_was_fenced_is_initialised_again_but_not_for_ever(error: KafkaError) -> None:
    policy = FailurePolicy(60.0)
    for number in range(MAX_FENCES):
        policy.judge(error, float(number), producers_clean=False)
    with pytest.raises(type(error)):
        policy.judge(error, FENCE_WINDOW_S - 1, producers_clean=False)


def test_fences_that_are_far_apart_pass() -> None:
    policy = FailurePolicy(60.0)
    for number in range(50):
        policy.judge(ProducerFencedError(ErrorCode.PRODUCER_FENCED), number * FENCE_WINDOW_S / 4, producers_clean=False)


def test_a_fatal_error_that_is_no_producers_is_the_consumers() -> None:
    with pytest.raises(FatalError):
        FailurePolicy(60.0).judge(FatalError(ErrorCode.FENCED_INSTANCE_ID), 0.0, producers_clean=True)


def test_what_looks_hopeless_is_tried_some_times_and_a_success_begins_anew() -> None:
    policy, error = FailurePolicy(60.0), AbortableError(ErrorCode.MESSAGE_TOO_LARGE)
    for _ in range(3):
        for _ in range(MAX_HOPELESS):
            policy.judge(error, 0.0, producers_clean=False)
        policy.succeeded()
    for _ in range(MAX_HOPELESS):
        policy.judge(error, 0.0, producers_clean=False)
    with pytest.raises(AbortableError):
        policy.judge(error, 0.0, producers_clean=False)


@pytest.mark.parametrize(
    "origin",
    [
        UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 'out' does not exist"),
        RecordTooLargeError(ErrorCode.MESSAGE_TOO_LARGE, "a record is too large"),
        AuthorizationError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'out'"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_made_the_transaction_fail_is_raised_with_its_own_remedy(origin: KafkaError) -> None:
    aborted, again = (AbortableError(origin.code, origin.message) for _ in range(2))
    aborted.__cause__, again.__cause__ = origin, aborted
    with pytest.raises(type(origin)) as raised:
        FailurePolicy(60.0).judge(again, 0.0, producers_clean=False)
    assert raised.value is origin


def missing(partition: int) -> KafkaError:
    return UnknownPartitionError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic 'out' has no partition {partition}")


def test_a_missing_partition_is_waited_for_as_long_as_a_topic_even_if_others_are_committed() -> None:
    policy = FailurePolicy(60.0)
    for second in range(60):
        policy.judge(missing(second % 2), float(second), producers_clean=True)
        policy.succeeded()
    with pytest.raises(UnknownPartitionError, match="no partition 0"):
        policy.judge(missing(0), 60.0, producers_clean=True)


def test_a_partition_that_was_missing_long_ago_is_waited_for_anew() -> None:
    policy = FailurePolicy(60.0)
    for number in range(10):
        policy.judge(missing(0), number * 61.0, producers_clean=True)
