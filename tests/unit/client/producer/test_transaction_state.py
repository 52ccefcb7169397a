"""The state table of a transactional producer, and what errors do to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oncelog.client.errors import (
    AbortableError,
    AuthorizationError,
    ErrorCode,
    FatalError,
    IllegalStateError,
    KafkaError,
    ProducerFencedError,
    error_for,
)
from oncelog.client.producer.coordinator_client import VERDICTS, Verdict, verdict
from oncelog.client.producer.transaction_manager import TransactionManager
from oncelog.client.producer.transaction_state import PREVIOUS, State, may_follow

S = State


def in_transaction() -> TransactionManager:
    manager = TransactionManager("t")
    for state in (S.INITIALIZING, S.READY):
        manager.become(state)
    manager.begin()
    return manager


def test_every_state_is_in_the_table_and_can_be_left_or_is_the_end() -> None:
    assert set(PREVIOUS) == set(State)
    for state in State:
        assert state is S.FATAL_ERROR or any(
            state in before for after, before in PREVIOUS.items() if after is not state
        )


def test_a_change_that_is_not_in_the_table_is_a_bug() -> None:
    manager = TransactionManager("t")
    with pytest.raises(AssertionError):
        manager.become(S.IN_TRANSACTION)
    assert not may_follow(S.COMMIT_UNKNOWN, S.ABORTING_TRANSACTION), "what may be committed must not be aborted"
    assert not may_follow(S.COMMIT_UNKNOWN, S.READY)
    assert not may_follow(S.ABORTABLE_ERROR, S.COMMITTING_TRANSACTION)


def test_after_an_abortable_error_only_abort_works() -> None:
    manager = in_transaction()
    manager.batch_failed(error_for(ErrorCode.INVALID_RECORD, "bad"))
    assert manager.state is S.ABORTABLE_ERROR
    with pytest.raises(AbortableError, match="bad"):
        manager.require(S.IN_TRANSACTION, doing="sending")
    assert not manager.may_send(("t", 0))
    manager.become(S.ABORTING_TRANSACTION)
    manager.finished()
    assert manager.error is None
    manager.begin()


def test_a_fatal_error_is_for_good() -> None:
    manager = in_transaction()
    assert isinstance(manager.fail_fatal(ErrorCode.PRODUCER_FENCED), ProducerFencedError)
    manager.batch_failed(error_for(ErrorCode.INVALID_RECORD, "later"))
    with pytest.raises(ProducerFencedError):
        manager.begin()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
        (ErrorCode.INVALID_TXN_STATE, FatalError),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, FatalError),
    ],
)
def test_what_is_fatal_says_so_by_its_type(code: ErrorCode, kind: type[KafkaError]) -> None:
    assert isinstance(in_transaction().fail_fatal(code), kind)


Event = Callable[[TransactionManager], object]
EVENTS: dict[str, Event] = {
    "a request fails": lambda manager: manager.fail_abortable(ErrorCode.UNKNOWN_MEMBER_ID),
    "a batch fails": lambda manager: manager.batch_failed(error_for(ErrorCode.INVALID_RECORD, "bad")),
    "a batch is not permitted": lambda manager: manager.batch_failed(error_for(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)),
    "the producer is fenced": lambda manager: manager.fail_fatal(ErrorCode.PRODUCER_FENCED),
    "the sender crashes": lambda manager: manager.crashed(FatalError(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug")),
    "the commit is refused": lambda manager: manager.commit_refused(AbortableError(ErrorCode.TRANSACTION_ABORTABLE)),
}
OF_THE_PRODUCER = {"the producer is fenced", "the sender crashes"}
"""The events after which a producer is unusable whatever its transaction does."""


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_may_happen_in_every_state_and_none_makes_a_requested_commit_abortable(
    state: State, event: str
) -> None:
    manager = TransactionManager("t")
    manager.state = state
    EVENTS[event](manager)
    if event in OF_THE_PRODUCER:
        assert manager.state is S.FATAL_ERROR
    elif event == "the commit is refused":
        assert manager.state is (S.ABORTABLE_ERROR if state is S.COMMITTING_TRANSACTION else state)
    elif state not in (S.IN_TRANSACTION, S.FLUSHING, S.ABORTABLE_ERROR, S.ABORTING_TRANSACTION):
        assert manager.state is state


def test_an_epoch_that_a_partition_refuses_is_left_to_the_coordinator_to_judge() -> None:
    manager = in_transaction()
    manager.batch_failed(error_for(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert manager.state is S.ABORTABLE_ERROR


def test_version_1_adds_a_partition_before_its_first_batch() -> None:
    manager = in_transaction()
    assert not manager.may_send(("t", 0))
    assert manager.unregistered == {("t", 0)}
    manager.registered_now({("t", 0)})
    assert manager.may_send(("t", 0))
    assert not manager.unregistered


def test_version_2_sends_at_once() -> None:
    manager = in_transaction()
    manager.version = 2
    assert manager.may_send(("t", 0))
    assert manager.started


def test_require_says_what_to_do() -> None:
    with pytest.raises(IllegalStateError, match="call init_transactions"):
        TransactionManager("t").begin()


@given(st.lists(st.sampled_from(list(State)), max_size=30))
def test_no_path_leads_from_an_unknown_commit_to_an_abort(states: list[State]) -> None:
    current = S.UNINITIALIZED
    unknown = False
    for state in states:
        if may_follow(current, state):
            current = state
            unknown = state is S.COMMIT_UNKNOWN or (unknown and state in (S.COMMITTING_TRANSACTION, S.COMMIT_UNKNOWN))
        if unknown:
            assert current not in (S.ABORTING_TRANSACTION, S.READY)


def test_verdicts_follow_the_table_and_the_codes() -> None:
    assert verdict(ErrorCode.CONCURRENT_TRANSACTIONS) is Verdict.RETRY_SOON
    assert verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) is Verdict.RETRY
    assert verdict(ErrorCode.PRODUCER_FENCED) is Verdict.FATAL
    assert all(not code.retriable for code, what in VERDICTS.items() if what is Verdict.ABORT)
