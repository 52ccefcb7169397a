"""What a record of `__transaction_state` brings back: all that the next life of the coordinator needs."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from oncelog.broker.coordinator.transaction.metadata import TransactionMetadata
from oncelog.broker.coordinator.transaction.state import NO_PRODUCER_EPOCH, TransactionState, TransactionVersion
from oncelog.broker.coordinator.transaction.transaction_log import SortedSets, decode_value, encode_value, is_large

ids = st.integers(-1, 2**63 - 1)
epochs = st.integers(0, 32767)
times = st.integers(0, 2**62)
partitions = st.frozensets(st.tuples(st.sampled_from(["t", "u", "__consumer_offsets"]), st.integers(0, 50)), max_size=5)
states = st.sampled_from(
    [state for state in TransactionState if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)]
)


@given(
    st.builds(
        TransactionMetadata,
        st.just("id"),
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=epochs,
        timeout_ms=st.integers(1, 2**31 - 1),
        last_update_timestamp_ms=times,
        state=states,
        previous_producer_id=ids,
        next_producer_id=ids,
        topic_partitions=partitions,
        start_timestamp_ms=times,
        client_transaction_version=st.sampled_from(TransactionVersion),
        session_partitions=partitions,
    )
)
def test_a_record_brings_back_everything(metadata: TransactionMetadata) -> None:
    """Except what `TransactionMetadata` says is not in the log."""
    if metadata.state is TransactionState.EMPTY:
        metadata = replace(metadata, topic_partitions=frozenset())
    assert metadata.last_producer_epoch == NO_PRODUCER_EPOCH
    value = encode_value(metadata, TransactionVersion.TV_2)
    assert decode_value("id", value) == replace(metadata, preregistered=metadata.session_partitions)


grown = st.lists(st.frozensets(st.tuples(st.sampled_from(["s", "t", "u", "v"]), st.integers(-5, 2000)), max_size=4))


@given(grown, grown, st.booleans())
def test_a_set_that_grows_is_encoded_as_if_it_were_sorted_anew(
    of_transaction: list[frozenset[tuple[str, int]]], of_session: list[frozenset[tuple[str, int]]], shrinks: bool
) -> None:
    sets = SortedSets.unknown()
    transaction = frozenset(("t", index) for index in range(0, 1600, 2))
    session = frozenset(("u", index) for index in range(1000))
    whole = transaction
    for number in range(max(len(of_transaction), len(of_session))):
        transaction = transaction.union(*of_transaction[number : number + 1])
        session = session.union(*of_session[number : number + 1])
        if shrinks and number % 3 == 2:
            transaction = whole
        metadata = TransactionMetadata(
            "id", 1, 0, 1, 1, TransactionState.ONGOING, topic_partitions=transaction, session_partitions=session
        )
        assert is_large(metadata)
        assert encode_value(metadata, TransactionVersion.TV_2, sets) == encode_value(metadata, TransactionVersion.TV_2)
