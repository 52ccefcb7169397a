"""The rules of sessions and of fencing, as tables: state × request → what becomes of the id."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oncelog.broker.coordinator.transaction import session
from oncelog.broker.coordinator.transaction.decisions import (
    ProducerIdentity,
    Step,
    decide_add,
    decide_end,
    decide_fence,
    decide_init,
)
from oncelog.broker.coordinator.transaction.metadata import TransactionMetadata, Written, complete_end
from oncelog.broker.coordinator.transaction.state import TransactionState, TransactionVersion
from oncelog.broker.coordinator.transaction.transaction_log import decode_value, encode_value
from oncelog.protocol.errors import ErrorCode, KafkaError

S = TransactionState
TV1, TV2 = TransactionVersion.TV_0, TransactionVersion.TV_2
A, B, C, D = ("t", 0), ("t", 1), ("u", 0), ("__consumer_offsets", 7)
NONE: frozenset[tuple[str, int]] = frozenset()
ME = ProducerIdentity(7, 5)


def metadata(
    state: TransactionState = S.COMPLETE_COMMIT,
    partitions: set[tuple[str, int]] | None = None,
    session: set[tuple[str, int]] | None = None,
    preregistered: set[tuple[str, int]] | None = None,
    **changes: Any,
) -> TransactionMetadata:
    made = TransactionMetadata(
        "id",
        *ME,
        60_000,
        100,
        state=state,
        topic_partitions=frozenset(partitions or ()),
        session_partitions=frozenset(session or ()),
        preregistered=frozenset(preregistered or ()),
        start_timestamp_ms=90,
    )
    return replace(made, **changes)


def add(of: TransactionMetadata, *partitions: tuple[str, int], version: TransactionVersion = TV2, **given: Any) -> Any:
    return decide_add(of, pending=False, identity=ME, partitions=partitions, version=version, now_ms=200, **given)


def end(
    of: TransactionMetadata,
    commit: bool,
    version: TransactionVersion,
    written: Callable[[TransactionMetadata], Written] | None = None,
    identity: ProducerIdentity = ME,
) -> Any:
    return decide_end(
        of,
        pending=False,
        identity=identity,
        commit=commit,
        version=version,
        new_producer_id=None,
        now_ms=200,
        written=written,
    )


def named(
    *partitions: tuple[str, int],
    known: AbstractSet[tuple[str, int]] | None = None,
    begins: bool = True,
    deleted: tuple[tuple[str, int], ...] = (),
) -> Callable[[TransactionMetadata], Written]:
    """EndTxn with Topics; `known` None is after a restart."""
    return lambda of: session.written(
        of, frozenset(partitions), known, begins_session=begins, deleted=lambda named: named & frozenset(deleted)
    )


class TestOpening:
    @pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
    def test_the_whole_session_is_logged_and_the_timeout_starts_there(self, state: TransactionState) -> None:
        made = add(metadata(state, session={A, B}), A)
        assert (made.state, made.topic_partitions, made.session_partitions) == (S.ONGOING, {A, B}, {A, B})
        assert (made.start_timestamp_ms, made.producer_epoch) == (200, 5)

    def test_a_partition_outside_joins_the_transaction_and_not_the_session(self) -> None:
        made = add(metadata(session={A}), C)
        assert (made.topic_partitions, made.session_partitions) == ({A, C}, {A})

    def test_partitions_of_deleted_topics_drop_out(self) -> None:
        made = add(metadata(session={A, B}, preregistered={B}), A, gone=frozenset({B}))
        assert (made.topic_partitions, made.session_partitions, made.preregistered) == ({A}, {A}, NONE)

    def test_a_session_begins_with_the_first_request_that_asks_for_it(self) -> None:
        made = add(metadata(S.EMPTY), A, B, session=True)
        assert (made.state, made.topic_partitions) == (S.ONGOING, {A, B})
        assert (made.session_partitions, made.preregistered) == ({A, B}, {A, B})

    def test_a_registered_partition_can_be_kept_beyond_the_transaction_later(self) -> None:
        ongoing = metadata(S.ONGOING, {A})
        assert add(ongoing, A) is Step.NOTHING
        made = add(ongoing, A, session=True)
        assert (made.session_partitions, made.preregistered) == ({A}, {A})
        assert add(made, A, session=True) is Step.NOTHING

    @pytest.mark.parametrize(
        ("state", "epoch", "partition", "opens"),
        [
            (S.COMPLETE_COMMIT, 5, A, True),
            (S.COMPLETE_ABORT, 5, A, True),
            (S.PREPARE_COMMIT, 5, A, True),
            (S.PREPARE_ABORT, 5, A, True),
            (S.ONGOING, 5, A, False),
            (S.COMPLETE_COMMIT, 4, A, False),
            (S.COMPLETE_COMMIT, 6, A, False),
            (S.COMPLETE_COMMIT, 5, B, False),
        ],
    )
    def test_who_opens_a_transaction_by_producing(
        self, state: TransactionState, epoch: int, partition: tuple[str, int], opens: bool
    ) -> None:
        assert session.opens(metadata(state, session={A}), 7, epoch, partition) is opens
        assert not session.opens(metadata(state, session={A}), 8, epoch, partition)


class TestMarkers:
    """EndTxn: which partitions get one. Registered are A, B, C; A and C are the session."""

    ONGOING = metadata(S.ONGOING, {A, B, C}, {A, C}, {C})

    @pytest.mark.parametrize("version", [TV1, TV2])
    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize(
        ("topics", "marked"),
        [
            (None, {A, B, C}),
            (named(A, known={A}), {A}),
            (named(known=set()), NONE),
            (named(A, known={B}), {A, B}),
            (named(known={B}), {B}),
            (named(A, B, C, known=set()), {A, B, C}),
            (named(A, known=None), {A, B, C}),
            (named(A, known={A, D}), {A}),
            (named(A, B, known={B}, deleted=(B,)), {A}),
        ],
    )
    def test_named_and_known_to_be_written(
        self,
        version: TransactionVersion,
        commit: bool,
        topics: Callable[[TransactionMetadata], Written] | None,
        marked: set[tuple[str, int]],
    ) -> None:
        made = end(self.ONGOING, commit, version, topics)
        assert made.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
        assert made.topic_partitions == marked
        assert made.producer_epoch == (6 if version is TV2 else 5)

    @pytest.mark.parametrize("version", [TV1, TV2])
    @pytest.mark.parametrize("state", [S.ONGOING, S.COMPLETE_COMMIT])
    def test_what_is_outside_of_transaction_and_session_is_refused(
        self, version: TransactionVersion, state: TransactionState
    ) -> None:
        of = metadata(state, {A, B} if state is S.ONGOING else None, {A})
        with pytest.raises(KafkaError) as raised:
            end(of, False, version, named(A, D, known={A}))
        assert raised.value.code is ErrorCode.INVALID_REQUEST
        assert "__consumer_offsets-7" in str(raised.value)

    def test_a_retry_is_not_judged_by_what_it_names(self) -> None:
        done = metadata(S.COMPLETE_COMMIT, client_transaction_version=TV2, last_producer_epoch=4)
        assert end(done, True, TV2, named(A), ProducerIdentity(7, 4)) is Step.NOTHING
        assert end(metadata(S.COMPLETE_COMMIT), True, TV1, named(A)) is Step.NOTHING

    def test_a_transaction_that_nothing_opened_is_aborted_where_it_may_have_been_written(self) -> None:
        made = end(metadata(session={A, B}), False, TV2, named(A, known=set()))
        assert (made.state, made.topic_partitions, made.producer_epoch) == (S.PREPARE_ABORT, {A}, 6)

    @settings(max_examples=300, deadline=None)
    @given(st.data())
    def test_never_fewer_than_written_never_more_than_registered(self, data: st.DataObject) -> None:
        some = st.frozensets(st.sampled_from([A, B, C, D]))
        kept, added, wrote, names = (data.draw(some) for _ in range(4))
        ongoing = metadata(S.ONGOING, {*kept, *added}, {*kept})
        registered = kept | added
        wrote &= registered
        known = data.draw(st.sampled_from([wrote, None]))
        version = data.draw(st.sampled_from([TV1, TV2]))
        topics = named(*names, known=known)
        if names - registered:
            with pytest.raises(KafkaError):
                end(ongoing, True, version, topics)
            return
        made = end(ongoing, data.draw(st.booleans()), version, topics)
        assert wrote <= made.topic_partitions <= registered
        assert made.topic_partitions == (names | wrote if known is not None else registered)


class TestAfterwards:
    """What the session is when the transaction is complete. Before, A and C are in it, C pre-registered."""

    ONGOING = metadata(S.ONGOING, {A, B, C}, {A, C}, {C})

    @pytest.mark.parametrize(
        ("version", "commit", "topics", "after"),
        [
            (TV2, True, None, {A, C}),
            (TV2, False, None, {A, C}),
            (TV1, True, None, {A, C}),
            (TV1, False, None, NONE),
            (TV2, True, named(B, known={B}), {B, C}),
            (TV2, False, named(B, known={B}), {B, C}),
            (TV1, True, named(B, known={B}), {B, C}),
            (TV1, False, named(B, known={B}), NONE),
            (TV2, True, named(known=set()), {C}),
            (TV2, True, named(B, known=None), {A, B, C}),
            (TV2, True, named(B, known={B}, begins=False), {A, C}),
            (TV2, True, named(A, B, known=set(), deleted=(B, C)), {A}),
        ],
    )
    def test_what_was_written_and_what_was_preregistered(
        self,
        version: TransactionVersion,
        commit: bool,
        topics: Callable[[TransactionMetadata], Written] | None,
        after: set[tuple[str, int]],
    ) -> None:
        done = complete_end(end(self.ONGOING, commit, version, topics), 300)
        assert done.session_partitions == after
        assert done.topic_partitions == NONE
        assert done.preregistered == after & {C}

    def test_it_begins_with_an_end_that_names_what_was_written(self) -> None:
        made = end(metadata(S.ONGOING, {A, B}), True, TV2, named(A, known={A}))
        assert (made.session_partitions, made.preregistered) == ({A}, NONE)

    @pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT, S.ONGOING])
    def test_any_initialisation_ends_it(self, state: TransactionState) -> None:
        of = metadata(state, {A} if state is S.ONGOING else None, {A})
        made: Any = decide_init(
            of,
            pending=False,
            timeout_ms=1,
            expected=None,
            server_version=TV2,
            new_producer_id=None,
            now_ms=200,
        )
        assert made.session_partitions == NONE

    @pytest.mark.parametrize(
        ("state", "commit", "outcome"),
        [
            (S.COMPLETE_COMMIT, False, S.PREPARE_ABORT),
            (S.PREPARE_COMMIT, False, Step.WAIT),
            (S.COMPLETE_COMMIT, True, Step.NOTHING),
            (S.PREPARE_COMMIT, True, Step.WAIT),
        ],
    )
    def test_an_older_client_may_abort_before_anything_came(
        self, state: TransactionState, commit: bool, outcome: Step | TransactionState
    ) -> None:
        of = metadata(state, {A} if state.is_prepare else None, {A})
        made = end(of, commit, TV1)
        if isinstance(outcome, Step):
            assert made is outcome
        else:
            assert (made.state, made.session_partitions, made.ended_session_epoch) == (outcome, NONE, 5)

    @pytest.mark.parametrize(
        ("state", "epoch", "ended", "late"),
        [
            (S.COMPLETE_ABORT, 5, 5, True),
            (S.PREPARE_ABORT, 5, 5, True),
            (S.COMPLETE_ABORT, 6, 5, True),
            (S.EMPTY, 6, 5, True),
            (S.ONGOING, 6, 5, True),
            (S.ONGOING, 5, 5, False),
            (S.COMPLETE_ABORT, 5, -1, False),
            (S.COMPLETE_ABORT, 5, 4, False),
        ],
    )
    def test_what_comes_after_its_end_is_late(
        self, state: TransactionState, epoch: int, ended: int, late: bool
    ) -> None:
        of = metadata(state, producer_epoch=epoch, ended_session_epoch=ended)
        assert session.came_late(of, 7, 5) is late


class TestRecord:
    @pytest.mark.parametrize("level", [TransactionVersion.TV_1, TransactionVersion.TV_2])
    def test_the_session_comes_back_and_counts_as_preregistered(self, level: TransactionVersion) -> None:
        of = metadata(S.ONGOING, {A, B, C}, {A, C}, {C})
        assert decode_value("id", encode_value(of, level)) == replace(of, preregistered=frozenset({A, C}))

    def test_the_oldest_layout_has_no_place_for_it(self) -> None:
        of = metadata(S.ONGOING, {A, B}, {A}, {A})
        assert decode_value("id", encode_value(of, TV1)) == replace(of, session_partitions=NONE, preregistered=NONE)


class TestFence:
    def fence(self, of: TransactionMetadata, pending: bool = False) -> Any:
        return decide_fence(of, pending=pending, server_version=TV2, now_ms=200)

    @pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
    def test_an_idle_holder_is_locked_out_by_the_next_epoch(self, state: TransactionState) -> None:
        made = self.fence(metadata(state, session=None if state is S.EMPTY else {A}))
        assert (made.state, made.producer_epoch, made.last_producer_epoch) == (S.EMPTY, 6, -1)
        assert (made.session_partitions, made.fenced) == (NONE, True)
        assert self.fence(made) is Step.NOTHING, "once"

    def test_an_ongoing_transaction_is_aborted_under_one_bump(self) -> None:
        made = self.fence(metadata(S.ONGOING, {A, B}, {B}))
        assert (made.state, made.producer_epoch, made.topic_partitions) == (S.PREPARE_ABORT, 6, {A, B})
        assert self.fence(made) is Step.WAIT
        done = self.fence(complete_end(made, 300))
        assert (done.state, done.producer_epoch) == (S.EMPTY, 6)
        assert self.fence(done) is Step.NOTHING

    @pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
    def test_a_decided_transaction_is_completed_first(self, state: TransactionState) -> None:
        decided = metadata(state, {A})
        assert self.fence(decided) is Step.WAIT
        assert self.fence(complete_end(decided, 300)).producer_epoch == 6

    def test_a_transition_under_way_is_waited_for(self) -> None:
        assert self.fence(metadata(), pending=True) is Step.WAIT

    def test_nobody_holds_a_new_id(self) -> None:
        assert self.fence(metadata(S.EMPTY, producer_epoch=-1)) is Step.NOTHING

    def test_the_last_epoch_is_kept_for_it(self) -> None:
        made = self.fence(metadata(producer_epoch=32766))
        assert made.producer_epoch == 32767
        assert self.fence(replace(made, fenced=False)) is Step.NOTHING, "also after a restart"

    @pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING])
    @pytest.mark.parametrize("epoch", [5, 6])
    def test_neither_epoch_is_of_any_use_afterwards(self, state: TransactionState, epoch: int) -> None:
        """5 was locked out; 6 nobody was told, and none shall learn it from the answer to a retry."""
        fenced = self.fence(metadata(state, {A} if state is S.ONGOING else None))
        steps = [fenced] if state is S.EMPTY else [complete_end(fenced, 300)]
        for of in steps:
            for version in (TV1, TV2):
                for commit in (True, False):
                    with pytest.raises(KafkaError) as raised:
                        end(of, commit, version, identity=ProducerIdentity(7, epoch))
                    assert raised.value.code is ErrorCode.PRODUCER_FENCED
                with pytest.raises(KafkaError) as raised:
                    decide_add(
                        of,
                        pending=False,
                        identity=ProducerIdentity(7, epoch),
                        partitions=[A],
                        version=version,
                        now_ms=1,
                    )
                assert raised.value.code is ErrorCode.PRODUCER_FENCED

    def test_the_next_initialisation_gives_the_id_to_somebody(self) -> None:
        fenced = self.fence(metadata())
        made: Any = decide_init(
            fenced,
            pending=False,
            timeout_ms=1,
            expected=None,
            server_version=TV2,
            new_producer_id=None,
            now_ms=300,
        )
        assert (made.producer_epoch, made.fenced) == (7, False)
        assert isinstance(add(replace(made, producer_epoch=5), A), TransactionMetadata)

    def test_recovering_by_the_locked_out_epoch_is_refused(self) -> None:
        with pytest.raises(KafkaError) as raised:
            decide_init(
                self.fence(metadata()),
                pending=False,
                timeout_ms=1,
                expected=ME,
                server_version=TV2,
                new_producer_id=None,
                now_ms=300,
            )
        assert raised.value.code is ErrorCode.PRODUCER_FENCED
