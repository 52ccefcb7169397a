"""The rules of InitProducerId, AddPartitionsToTxn and EndTxn, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from oncelog.broker.coordinator.transaction.decisions import (
    ProducerIdentity,
    Step,
    decide_add,
    decide_end,
    decide_init,
    verify_partition,
)
from oncelog.broker.coordinator.transaction.metadata import (
    TransactionMetadata,
    complete_end,
    fence_idle,
    new_metadata,
    prepare_end,
    prepare_fence,
)
from oncelog.broker.coordinator.transaction.state import (
    STATE_BY_LABEL,
    VALID_PREVIOUS_STATES,
    TransactionState,
    TransactionVersion,
)
from oncelog.protocol.errors import ErrorCode, KafkaError

S = TransactionState
TV1, TV2 = TransactionVersion.TV_0, TransactionVersion.TV_2
P0, P1 = ("t", 0), ("t", 1)
LAST = 32766  # the last epoch that a producer is given


def metadata(state: TransactionState = S.EMPTY, epoch: int = 5, **changes: Any) -> TransactionMetadata:
    partitions = frozenset({P0}) if state is S.ONGOING or state.is_prepare else frozenset()
    made = TransactionMetadata(
        "id", 7, epoch, 60_000, 100, state=state, topic_partitions=partitions, start_timestamp_ms=90
    )
    return replace(made, **changes)


def init(of: TransactionMetadata, expected: tuple[int, int] | None = None, **given: Any) -> TransactionMetadata | Step:
    arguments: dict[str, Any] = {"pending": False, "new_producer_id": None, "server_version": TV2, "timeout_ms": 30_000}
    believed = None if expected is None else ProducerIdentity(*expected)
    return decide_init(of, expected=believed, now_ms=200, **{**arguments, **given})


def end(
    of: TransactionMetadata, commit: bool, epoch: int = 5, version: TransactionVersion = TV1, **given: Any
) -> TransactionMetadata | Step:
    arguments: dict[str, Any] = {"pending": False, "new_producer_id": None, "identity": ProducerIdentity(7, epoch)}
    return decide_end(of, commit=commit, version=version, now_ms=200, **{**arguments, **given})


def add(of: TransactionMetadata, identity: tuple[int, int] = (7, 5), **given: Any) -> TransactionMetadata | Step:
    arguments: dict[str, Any] = {"pending": False, "partitions": [P0], "version": TV1}
    return decide_add(of, identity=ProducerIdentity(*identity), now_ms=200, **{**arguments, **given})


def code_of(call: Any, *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        call(*args, **kwargs)
    return raised.value.code


def test_state_names_and_ids_are_kafkas() -> None:
    assert [(int(state), state.label) for state in TransactionState] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]
    assert STATE_BY_LABEL["CompleteAbort"] is S.COMPLETE_ABORT


def test_a_decision_is_never_left_but_for_its_completion() -> None:
    assert {state for state, previous in VALID_PREVIOUS_STATES.items() if S.PREPARE_COMMIT in previous} == {
        S.COMPLETE_COMMIT
    }
    assert {state for state, previous in VALID_PREVIOUS_STATES.items() if S.PREPARE_ABORT in previous} == {
        S.COMPLETE_ABORT
    }


class TestInit:
    def test_new_id_starts_at_epoch_0(self) -> None:
        made = init(new_metadata("id", 7, 30_000, 100))
        assert isinstance(made, TransactionMetadata)
        assert (made.producer_id, made.producer_epoch, made.state) == (7, 0, S.EMPTY)

    @pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
    def test_new_instance_bumps_the_epoch_and_allows_no_retry_of_the_old_one(self, state: TransactionState) -> None:
        made = init(metadata(state))
        assert isinstance(made, TransactionMetadata)
        assert (made.producer_epoch, made.last_producer_epoch, made.state) == (6, -1, S.EMPTY)
        assert (made.timeout_ms, made.topic_partitions, made.start_timestamp_ms) == (30_000, frozenset(), -1)

    @pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
    def test_decided_transaction_is_waited_for(self, state: TransactionState) -> None:
        assert init(metadata(state)) is Step.WAIT

    def test_transition_under_way_is_waited_for_before_anything_is_checked(self) -> None:
        assert init(metadata(), (99, 99), pending=True) is Step.WAIT

    @pytest.mark.parametrize("version", [TV1, TV2])
    def test_ongoing_transaction_is_aborted_under_one_bump(self, version: TransactionVersion) -> None:
        made = init(metadata(S.ONGOING), server_version=version)
        assert isinstance(made, TransactionMetadata)
        assert (made.state, made.producer_epoch, made.last_producer_epoch) == (S.PREPARE_ABORT, 6, -1)
        assert made.topic_partitions == {P0}

    @pytest.mark.parametrize("commit", [True, False])
    def test_producer_whose_transaction_is_aborted_for_a_newer_one_is_fenced_at_once(self, commit: bool) -> None:
        aborting = init(metadata(S.ONGOING))
        assert isinstance(aborting, TransactionMetadata)
        for state in (aborting, complete_end(aborting, 300)):
            assert code_of(end, state, commit, 5, TV2) is ErrorCode.PRODUCER_FENCED

    def test_session_ends_with_initialisation(self) -> None:
        made = init(metadata(session_partitions=frozenset({P1})))
        assert isinstance(made, TransactionMetadata)
        assert made.session_partitions == frozenset()

    def test_recovering_producer_gets_the_next_epoch_and_may_repeat(self) -> None:
        bumped = init(metadata(), (7, 5))
        assert isinstance(bumped, TransactionMetadata)
        assert (bumped.producer_epoch, bumped.last_producer_epoch) == (6, 5)
        repeated = init(bumped, (7, 5))
        assert isinstance(repeated, TransactionMetadata)
        assert (repeated.producer_epoch, repeated.last_producer_epoch) == (6, 5)

    def test_recovering_producer_is_fenced_once_another_instance_came(self) -> None:
        other = init(metadata())
        assert isinstance(other, TransactionMetadata)
        assert code_of(init, other, (7, 5)) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("expected", [(8, 5), (7, 3), (7, 6)])
    def test_wrong_identity_is_fenced(self, expected: tuple[int, int]) -> None:
        assert code_of(init, metadata(), expected) is ErrorCode.PRODUCER_FENCED

    @pytest.mark.parametrize("expected", [(8, 5), (7, 4), (7, 6)])
    def test_zombie_never_aborts_its_successors_transaction(self, expected: tuple[int, int]) -> None:
        assert code_of(init, metadata(S.ONGOING, last_producer_epoch=4), expected) is ErrorCode.PRODUCER_FENCED

    def test_forgotten_id_takes_a_producer_that_believes_in_an_older_one(self) -> None:
        made = init(new_metadata("id", 7, 30_000, 100), (3, 12))
        assert isinstance(made, TransactionMetadata)
        assert (made.producer_id, made.producer_epoch) == (7, 0)

    @pytest.mark.parametrize("expected", [None, (7, LAST)])
    def test_exhausted_epochs_take_a_new_producer_id(self, expected: tuple[int, int] | None) -> None:
        exhausted = metadata(epoch=LAST)
        assert init(exhausted, expected) is Step.NEEDS_PRODUCER_ID
        made = init(exhausted, expected, new_producer_id=9)
        assert isinstance(made, TransactionMetadata)
        assert (made.producer_id, made.previous_producer_id, made.producer_epoch) == (9, 7, 0)
        assert made.last_producer_epoch == (-1 if expected is None else LAST)

    def test_rotation_may_be_repeated_by_the_one_who_asked_for_it(self) -> None:
        rotated = init(metadata(epoch=LAST), (7, LAST), new_producer_id=9)
        assert isinstance(rotated, TransactionMetadata)
        repeated = init(rotated, (7, LAST))
        assert isinstance(repeated, TransactionMetadata)
        assert (repeated.producer_id, repeated.producer_epoch) == (9, 0)
        by_other = init(metadata(epoch=LAST), new_producer_id=9)
        assert isinstance(by_other, TransactionMetadata)
        assert code_of(init, by_other, (7, LAST)) is ErrorCode.PRODUCER_FENCED

    def test_fencing_at_the_last_epoch_uses_the_one_kept_back_and_then_rotates(self) -> None:
        fenced = init(metadata(S.ONGOING, epoch=LAST))
        assert isinstance(fenced, TransactionMetadata)
        assert fenced.producer_epoch == LAST + 1
        assert init(complete_end(fenced, 300)) is Step.NEEDS_PRODUCER_ID


class TestAdd:
    @pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
    def test_first_partition_starts_the_transaction(self, state: TransactionState) -> None:
        made = add(metadata(state))
        assert isinstance(made, TransactionMetadata)
        assert (made.state, made.start_timestamp_ms, made.topic_partitions) == (S.ONGOING, 200, frozenset({P0}))

    def test_further_partitions_keep_the_start(self) -> None:
        made = add(metadata(S.ONGOING), partitions=[P1])
        assert isinstance(made, TransactionMetadata)
        assert (made.start_timestamp_ms, made.topic_partitions) == (90, frozenset({P0, P1}))

    def test_registered_partitions_need_nothing(self) -> None:
        assert add(metadata(S.ONGOING)) is Step.NOTHING

    @pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
    def test_decided_transaction_is_waited_for(self, state: TransactionState) -> None:
        assert add(metadata(state)) is Step.WAIT

    def test_transition_under_way_is_waited_for(self) -> None:
        assert add(metadata(), (1, 1), pending=True) is Step.WAIT

    @pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT])
    def test_wrong_identity_is_refused_in_every_state(self, state: TransactionState) -> None:
        assert code_of(add, metadata(state), (8, 5)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert code_of(add, metadata(state), (7, 4)) is ErrorCode.PRODUCER_FENCED
        assert code_of(add, metadata(state), (7, 6)) is ErrorCode.PRODUCER_FENCED

    def test_producer_id_that_takes_over_waits_for_the_takeover(self) -> None:
        decided = prepare_end(metadata(S.ONGOING, epoch=LAST), True, TV2, 200, next_producer_id=9)
        assert add(decided, (9, 0)) is Step.WAIT
        assert isinstance(add(complete_end(decided, 300), (9, 0)), TransactionMetadata)


class TestEndVersion1:
    @pytest.mark.parametrize(("commit", "state"), [(True, S.PREPARE_COMMIT), (False, S.PREPARE_ABORT)])
    def test_ongoing_is_decided_under_the_same_epoch(self, commit: bool, state: TransactionState) -> None:
        made = end(metadata(S.ONGOING), commit)
        assert isinstance(made, TransactionMetadata)
        assert (made.state, made.producer_epoch, made.topic_partitions) == (state, 5, frozenset({P0}))

    @pytest.mark.parametrize(
        ("state", "commit", "outcome"),
        [
            (S.EMPTY, True, ErrorCode.INVALID_TXN_STATE),
            (S.EMPTY, False, ErrorCode.INVALID_TXN_STATE),
            (S.PREPARE_COMMIT, True, Step.WAIT),
            (S.PREPARE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
            (S.PREPARE_ABORT, False, Step.WAIT),
            (S.PREPARE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
            (S.COMPLETE_COMMIT, True, Step.NOTHING),
            (S.COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
            (S.COMPLETE_ABORT, False, Step.NOTHING),
            (S.COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        ],
    )
    def test_without_an_ongoing_transaction(
        self, state: TransactionState, commit: bool, outcome: Step | ErrorCode
    ) -> None:
        if isinstance(outcome, Step):
            assert end(metadata(state), commit) is outcome
        else:
            assert code_of(end, metadata(state), commit) is outcome

    @pytest.mark.parametrize("epoch", [4, 6])
    def test_wrong_epoch_is_fenced(self, epoch: int) -> None:
        assert code_of(end, metadata(S.ONGOING), True, epoch) is ErrorCode.PRODUCER_FENCED

    def test_unknown_producer_id_is_an_invalid_mapping(self) -> None:
        wrong = ProducerIdentity(8, 5)
        assert code_of(end, metadata(S.ONGOING), True, identity=wrong) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


class TestEndVersion2:
    @pytest.mark.parametrize("commit", [True, False])
    def test_ongoing_is_decided_under_the_next_epoch(self, commit: bool) -> None:
        made = end(metadata(S.ONGOING), commit, version=TV2)
        assert isinstance(made, TransactionMetadata)
        assert (made.producer_epoch, made.last_producer_epoch, made.client_transaction_version) == (6, 5, TV2)
        done = complete_end(made, 300)
        assert (done.producer_id, done.producer_epoch, done.last_producer_epoch) == (7, 6, 5)

    ENDS = "ends"

    @pytest.mark.parametrize(
        ("state", "commit", "epoch", "outcome"),
        [
            (S.EMPTY, False, 4, ErrorCode.PRODUCER_FENCED),
            (S.EMPTY, False, 5, ENDS),
            (S.EMPTY, True, 4, ErrorCode.PRODUCER_FENCED),
            (S.EMPTY, True, 5, ErrorCode.INVALID_TXN_STATE),
            (S.COMPLETE_ABORT, False, 4, Step.NOTHING),
            (S.COMPLETE_ABORT, False, 5, ENDS),
            (S.COMPLETE_ABORT, True, 4, ErrorCode.INVALID_TXN_STATE),
            (S.COMPLETE_ABORT, True, 5, ErrorCode.INVALID_TXN_STATE),
            (S.COMPLETE_COMMIT, False, 4, ErrorCode.INVALID_TXN_STATE),
            (S.COMPLETE_COMMIT, False, 5, ENDS),
            (S.COMPLETE_COMMIT, True, 4, Step.NOTHING),
            (S.COMPLETE_COMMIT, True, 5, ErrorCode.INVALID_TXN_STATE),
            (S.PREPARE_COMMIT, True, 4, Step.WAIT),
            (S.PREPARE_COMMIT, True, 5, Step.WAIT),
            (S.PREPARE_COMMIT, True, 3, ErrorCode.PRODUCER_FENCED),
            (S.PREPARE_ABORT, False, 5, Step.WAIT),
            (S.PREPARE_COMMIT, False, 4, ErrorCode.INVALID_TXN_STATE),
            (S.PREPARE_ABORT, False, 4, Step.WAIT),
            (S.PREPARE_ABORT, True, 4, ErrorCode.INVALID_TXN_STATE),
            (S.ONGOING, True, 4, ErrorCode.PRODUCER_FENCED),
            (S.ONGOING, True, 6, ErrorCode.PRODUCER_FENCED),
            (S.COMPLETE_COMMIT, True, 3, ErrorCode.PRODUCER_FENCED),
        ],
    )
    def test_retries_are_told_from_new_requests_by_their_epoch(
        self, state: TransactionState, commit: bool, epoch: int, outcome: Step | ErrorCode | str
    ) -> None:
        of = metadata(state, client_transaction_version=TV2, last_producer_epoch=4)
        if outcome == self.ENDS:
            made = end(of, commit, epoch, TV2)
            assert isinstance(made, TransactionMetadata)
            assert (made.state, made.producer_epoch, made.topic_partitions) == (S.PREPARE_ABORT, 6, frozenset())
        elif isinstance(outcome, Step):
            assert end(of, commit, epoch, TV2) is outcome
        else:
            assert code_of(end, of, commit, epoch, TV2) is outcome

    def test_exhausted_epochs_rotate_the_producer_id_with_the_end(self) -> None:
        ongoing = metadata(S.ONGOING, epoch=LAST)
        assert end(ongoing, True, LAST, TV2) is Step.NEEDS_PRODUCER_ID
        decided = end(ongoing, True, LAST, TV2, new_producer_id=9)
        assert isinstance(decided, TransactionMetadata)
        assert (decided.producer_id, decided.producer_epoch, decided.next_producer_id) == (7, LAST + 1, 9)
        assert end(decided, True, LAST, TV2) is Step.WAIT  # a retry
        done = complete_end(decided, 300)
        assert (done.producer_id, done.previous_producer_id, done.producer_epoch) == (9, 7, 0)
        assert end(done, True, LAST, TV2) is Step.NOTHING  # the retry again
        assert code_of(end, done, False, LAST, TV2) is ErrorCode.INVALID_TXN_STATE

    @pytest.mark.parametrize("commit", [True, False])
    def test_an_end_under_a_rotated_producer_id_is_no_retry_once_an_older_client_goes_on(self, commit: bool) -> None:
        """Its transactions all have epoch 0; what became of them says nothing about a predecessor's."""
        fenced = complete_end(metadata(S.PREPARE_ABORT, epoch=LAST + 1, client_transaction_version=TV2), 300)
        taken_over = init(fenced, new_producer_id=9)
        assert isinstance(taken_over, TransactionMetadata)
        ongoing = add(taken_over, (9, 0))
        assert isinstance(ongoing, TransactionMetadata)
        decided = end(ongoing, commit, identity=ProducerIdentity(9, 0))
        assert isinstance(decided, TransactionMetadata)
        ended = complete_end(decided, 500)
        assert (ended.producer_id, ended.producer_epoch, ended.previous_producer_id) == (9, 0, 7)
        assert code_of(end, ended, commit, LAST, TV2) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_producer_aborted_by_timeout_learns_its_new_epoch_from_its_own_abort(self) -> None:
        timed_out = complete_end(metadata(S.PREPARE_ABORT, epoch=6, client_transaction_version=TV2), 300)
        assert end(timed_out, False, 5, TV2) is Step.NOTHING
        assert code_of(end, timed_out, True, 5, TV2) is ErrorCode.INVALID_TXN_STATE

    @pytest.mark.parametrize("state", [S.PREPARE_ABORT, S.COMPLETE_ABORT])
    def test_producer_aborted_by_timeout_initialises_with_its_previous_epoch(self, state: TransactionState) -> None:
        timed_out = prepare_fence(metadata(S.ONGOING), TV2, 200)
        if state is S.PREPARE_ABORT:
            assert init(timed_out, (7, 5)) is Step.WAIT
            return
        timed_out = complete_end(timed_out, 300)
        returned = init(timed_out, (7, 5))
        assert isinstance(returned, TransactionMetadata)
        assert (returned.producer_epoch, returned.state) == (6, S.EMPTY)
        assert code_of(init, timed_out, (7, 4)) is ErrorCode.PRODUCER_FENCED

    def test_producer_aborted_by_another_one_never_returns(self) -> None:
        fenced = complete_end(prepare_fence(metadata(S.ONGOING), TV2, 200, fenced=True), 300)
        assert code_of(init, fenced, (7, 5)) is ErrorCode.PRODUCER_FENCED
        timed_out = complete_end(prepare_fence(metadata(S.ONGOING), TV2, 200), 300)
        successor = init(timed_out)
        assert isinstance(successor, TransactionMetadata)
        assert code_of(init, successor, (7, 5)) is ErrorCode.PRODUCER_FENCED
        operator = fence_idle(timed_out, 400)
        assert code_of(init, operator, (7, 5)) is ErrorCode.PRODUCER_FENCED

    def test_epoch_used_up_by_a_timeout_is_never_handed_out(self) -> None:
        timed_out = complete_end(prepare_fence(metadata(S.ONGOING, epoch=LAST), TV2, 200), 300)
        assert code_of(init, timed_out, (7, LAST)) is ErrorCode.PRODUCER_FENCED

    def test_epoch_used_up_by_fencing_is_never_handed_out(self) -> None:
        fenced = metadata(S.COMPLETE_ABORT, epoch=LAST + 1, client_transaction_version=TV2)
        assert code_of(end, fenced, False, LAST, TV2) is ErrorCode.PRODUCER_FENCED


class TestVerify:
    @pytest.mark.parametrize(
        ("state", "identity", "partition", "code"),
        [
            (S.ONGOING, (7, 5), P0, ErrorCode.NONE),
            (S.ONGOING, (7, 5), P1, ErrorCode.TRANSACTION_ABORTABLE),
            (S.ONGOING, (8, 5), P0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (S.ONGOING, (7, 4), P0, ErrorCode.PRODUCER_FENCED),
            (S.PREPARE_COMMIT, (7, 5), P0, ErrorCode.INVALID_TXN_STATE),
            (S.PREPARE_ABORT, (7, 5), P0, ErrorCode.INVALID_TXN_STATE),
            (S.EMPTY, (7, 5), P0, ErrorCode.TRANSACTION_ABORTABLE),
            (S.COMPLETE_COMMIT, (7, 5), P0, ErrorCode.TRANSACTION_ABORTABLE),
        ],
    )
    def test_only_the_ongoing_transactions_partitions_pass(
        self, state: TransactionState, identity: tuple[int, int], partition: tuple[str, int], code: ErrorCode
    ) -> None:
        assert verify_partition(metadata(state), ProducerIdentity(*identity), partition) is code
