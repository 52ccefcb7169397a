"""Transactions request by request, on oncelog and (with --kafka) on Apache Kafka: the same codes in the same places."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.list_transactions import ListTransactionsRequest
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from support.transaction_wire import RETRIED, TransactionWire, read
from support.wire import Wire, eventually, retry

E = ErrorCode
Fresh = Callable[[str], str]


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as wire:
        yield wire


@pytest.fixture
def topic(wire: Wire, fresh_name: Fresh) -> str:
    name = fresh_name("topic")
    wire.create_topic(name, 2)
    return name


@pytest.fixture
def txn(wire: Wire, fresh_name: Fresh) -> TransactionWire:
    return TransactionWire(wire, fresh_name("id"))


def describe(wire: Wire, transactional_id: str) -> TransactionState:
    (state,) = wire.call(DescribeTransactionsRequest([transactional_id]), 0).transaction_states
    return state


class TestInitProducerId:
    @pytest.mark.parametrize("version", range(6))
    def test_producer_without_transactional_id_gets_an_id_of_its_own(self, wire: Wire, version: int) -> None:
        request = InitProducerIdRequest(None, 60_000)
        answers = [retry(lambda: wire.call(request, version), lambda got: got.error_code, *RETRIED) for _ in range(3)]
        assert {(answer.error_code, answer.producer_epoch) for answer in answers} == {(0, 0)}
        assert len({answer.producer_id for answer in answers}) == 3

    @pytest.mark.parametrize("version", range(6))
    def test_each_instance_gets_the_next_epoch(self, txn: TransactionWire, version: int) -> None:
        first, second = txn.init(version), txn.init(version)
        assert (first.error_code, first.producer_epoch) == (0, 0)
        assert (second.producer_id, second.producer_epoch) == (first.producer_id, 1)

    def test_recovering_producer_gets_the_next_epoch_and_may_ask_again(self, txn: TransactionWire) -> None:
        txn.init()
        before = txn.producer_id, txn.epoch
        assert txn.init(believed=before).producer_epoch == 1
        assert txn.init(believed=before).producer_epoch == 1
        assert txn.init(believed=(txn.producer_id, 1)).producer_epoch == 2
        assert txn.init(believed=before).error_code == E.PRODUCER_FENCED
        assert txn.init(version=3, believed=before).error_code == E.INVALID_PRODUCER_EPOCH

    def test_recovering_producer_is_fenced_by_a_new_instance(self, txn: TransactionWire) -> None:
        txn.init()
        before = txn.producer_id, txn.epoch
        txn.init()
        assert txn.init(believed=before).error_code == E.PRODUCER_FENCED
        assert txn.init(believed=(txn.producer_id + 1, 0)).error_code == E.PRODUCER_FENCED

    @pytest.mark.parametrize("believed", [(5, -1), (-1, 5)])
    def test_half_an_identity_is_an_invalid_request(self, txn: TransactionWire, believed: tuple[int, int]) -> None:
        assert txn.init(believed=believed).error_code == E.INVALID_REQUEST

    @pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
    def test_timeout_out_of_range_is_refused(self, txn: TransactionWire, timeout_ms: int) -> None:
        assert txn.init(timeout_ms=timeout_ms).error_code == E.INVALID_TRANSACTION_TIMEOUT

    def test_empty_transactional_id_is_refused(self, wire: Wire) -> None:
        assert wire.call(InitProducerIdRequest("", 60_000), 5).error_code == E.INVALID_REQUEST

    def test_ongoing_transaction_of_the_former_instance_is_aborted(
        self, wire: Wire, txn: TransactionWire, topic: str
    ) -> None:
        txn.init()
        assert txn.add(topic, 0) == {0: 0}
        assert txn.produce(topic, b"lost") == 0
        old = txn.epoch
        assert txn.init().producer_epoch == old + 2
        eventually(lambda: read(wire, topic).last_stable_offset == 2)
        assert read(wire, topic).values == []
        assert txn.end(True, epoch=old).error_code == E.PRODUCER_FENCED
        assert txn.end(True, epoch=old, version=1).error_code == E.INVALID_PRODUCER_EPOCH
        assert txn.produce(topic, b"zombie", epoch=old) == E.INVALID_PRODUCER_EPOCH
        assert txn.add(topic, 0, epoch=old) == {0: E.PRODUCER_FENCED}
        assert txn.add(topic, 0, epoch=old, version=1) == {0: E.INVALID_PRODUCER_EPOCH}


class TestVersion1:
    """Clients that register partitions and keep their epoch: AddPartitionsToTxn, Produce < 12, EndTxn < 5."""

    @pytest.mark.parametrize("version", range(5))
    def test_commit_shows_the_records_together_and_abort_none(
        self, wire: Wire, txn: TransactionWire, topic: str, version: int
    ) -> None:
        txn.init()
        for commit in (True, False, True):
            assert txn.add(topic, 0, 1, version=min(version, 3)) == {0: 0, 1: 0}
            assert txn.produce(topic, b"a%d" % commit) == 0
            assert txn.produce(topic, b"b%d" % commit, partition=1) == 0
            assert txn.end(commit, version).error_code == 0
        eventually(lambda: read(wire, topic, 1).values == [b"b1", b"b1"])
        eventually(lambda: read(wire, topic).values == [b"a1", b"a1"])
        for max_bytes in range(1, 500, 50):  # some responses begin with the abort marker
            assert read(wire, topic, max_bytes=max_bytes).values == [b"a1", b"a1"], max_bytes
        assert read(wire, topic, committed=False).values == [b"a1", b"a0", b"a1"]

    def test_open_transaction_is_invisible_and_holds_back_what_follows(
        self, wire: Wire, txn: TransactionWire, topic: str
    ) -> None:
        txn.init()
        txn.add(topic, 0)
        txn.produce(topic, b"open")
        seen = read(wire, topic)
        assert (seen.values, seen.last_stable_offset, seen.high_watermark) == ([], 0, 1)
        txn.end(True)
        eventually(lambda: read(wire, topic).values == [b"open"])

    def test_repeated_end_is_answered_again_and_the_opposite_refused(self, txn: TransactionWire, topic: str) -> None:
        txn.init()
        assert txn.end(True).error_code == E.INVALID_TXN_STATE
        assert txn.end(False).error_code == E.INVALID_TXN_STATE
        txn.add(topic, 0)
        assert txn.end(True).error_code == 0
        assert txn.end(True).error_code == 0
        assert txn.end(False).error_code == E.INVALID_TXN_STATE

    def test_unknown_partition_registers_none(self, wire: Wire, txn: TransactionWire, topic: str) -> None:
        txn.init()
        assert txn.add(topic, 0, 7) == {0: E.OPERATION_NOT_ATTEMPTED, 7: E.UNKNOWN_TOPIC_OR_PARTITION}
        assert describe(wire, txn.tid).transaction_state == "Empty"

    @pytest.mark.parametrize("count", [1, 150])
    @pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state"])
    def test_clients_cannot_register_internal_topics(
        self, wire: Wire, txn: TransactionWire, internal: str, count: int
    ) -> None:
        txn.init()
        assert txn.add(internal, *range(count)) == dict.fromkeys(range(count), E.TOPIC_AUTHORIZATION_FAILED)
        assert describe(wire, txn.tid).transaction_state == "Empty"

    def test_identity_that_is_not_the_ids_is_refused(self, txn: TransactionWire, topic: str) -> None:
        txn.init()
        txn.producer_id += 1
        assert txn.add(topic, 0) == {0: E.INVALID_PRODUCER_ID_MAPPING}
        assert txn.end(True).error_code == E.INVALID_PRODUCER_ID_MAPPING

    def test_unknown_transactional_id_is_an_invalid_mapping(self, wire: Wire, txn: TransactionWire, topic: str) -> None:
        wire.find_coordinator(txn.tid, 1)
        assert txn.add(topic, 0) == {0: E.INVALID_PRODUCER_ID_MAPPING}
        assert txn.end(True).error_code == E.INVALID_PRODUCER_ID_MAPPING

    def test_batch_on_a_partition_that_is_not_registered_is_refused(self, txn: TransactionWire, topic: str) -> None:
        txn.init()
        txn.add(topic, 0)
        assert txn.produce(topic, b"?", partition=1, version=11) == E.TRANSACTION_ABORTABLE
        assert txn.produce(topic, b"?", partition=1, version=10) == E.INVALID_TXN_STATE

    @pytest.mark.parametrize("version", range(5))
    def test_offsets_topic_joins_the_transaction(
        self, wire: Wire, txn: TransactionWire, fresh_name: Fresh, version: int
    ) -> None:
        txn.init()
        group = fresh_name("group")
        wire.find_coordinator(group, 0)
        request = AddOffsetsToTxnRequest(txn.tid, txn.producer_id, txn.epoch, group)
        assert wire.call(request, version).error_code == 0
        assert [entry.topic for entry in describe(wire, txn.tid).topics] == ["__consumer_offsets"]
        assert txn.end(False).error_code == 0


class TestVersion2:
    """KIP-890: producing registers, and every end hands out the next epoch."""

    def test_producing_registers_and_every_end_bumps_the_epoch(
        self, wire: Wire, txn: TransactionWire, topic: str
    ) -> None:
        txn.init()
        for number, commit in enumerate((True, False, True)):
            assert txn.produce(topic, b"%d" % number, version=12) == 0
            assert describe(wire, txn.tid).transaction_state == "Ongoing"
            answer = txn.end(commit, version=5)
            assert (answer.error_code, answer.producer_epoch) == (0, number + 1)
        eventually(lambda: read(wire, topic).values == [b"0", b"2"])

    def test_repeated_end_gives_the_same_identity_again(self, txn: TransactionWire, topic: str) -> None:
        txn.init()
        assert txn.produce(topic, b"x", version=12) == 0
        first = txn.end(True, version=5)
        again = txn.end(True, version=5, epoch=0)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, first.producer_id, 1)
        assert txn.end(False, version=5, epoch=0).error_code == E.INVALID_TXN_STATE

    def test_batch_under_the_former_epoch_is_late(self, wire: Wire, txn: TransactionWire, topic: str) -> None:
        txn.init()
        assert txn.produce(topic, b"x", version=12) == 0
        txn.end(True, version=5)
        eventually(lambda: describe(wire, txn.tid).transaction_state == "CompleteCommit")
        assert txn.produce(topic, b"late", version=12, epoch=0) == E.INVALID_PRODUCER_EPOCH
        assert txn.end(True, version=5, epoch=5).error_code == E.PRODUCER_FENCED

    def test_abort_of_nothing_bumps_the_epoch_and_commit_of_nothing_is_refused(self, txn: TransactionWire) -> None:
        txn.init()
        assert txn.end(True, version=5).error_code == E.INVALID_TXN_STATE
        assert (txn.end(False, version=5).error_code, txn.epoch) == (0, 1)
        assert (txn.end(False, version=5).error_code, txn.epoch) == (0, 2)
        assert txn.end(True, version=5).error_code == E.INVALID_TXN_STATE

    def test_fencing_bumps_the_epoch_by_two(self, txn: TransactionWire, topic: str) -> None:
        txn.init()
        assert txn.produce(topic, b"x", version=12) == 0
        assert txn.init().producer_epoch == 2


class TestOffsets:
    @pytest.mark.parametrize("version", range(6))
    def test_offsets_of_another_identity_are_refused(
        self, wire: Wire, txn: TransactionWire, topic: str, fresh_name: Fresh, version: int
    ) -> None:
        group = fresh_name("group")
        wire.find_coordinator(group, 0)
        txn.init()
        txn.init()

        def commit(producer_id: int, epoch: int) -> int:
            partition = TxnOffsetCommitRequestPartition(0, 5, -1, "")
            topics = [TxnOffsetCommitRequestTopic(topic, [partition])]
            request = TxnOffsetCommitRequest(txn.tid, group, producer_id, epoch, topics=topics)
            code: int = retry(
                lambda: wire.call(request, version).topics[0].partitions[0].error_code, lambda code: code, *RETRIED
            )
            return code

        assert commit(txn.producer_id, 0) == E.INVALID_PRODUCER_EPOCH
        assert commit(txn.producer_id + 1, 1) == E.INVALID_PRODUCER_ID_MAPPING
        not_added = {4: E.TRANSACTION_ABORTABLE, 5: E.NONE}.get(version, E.INVALID_TXN_STATE)
        assert commit(txn.producer_id, 1) == not_added


class TestTimeout:
    def test_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(
        self, wire: Wire, txn: TransactionWire, topic: str
    ) -> None:
        txn.init(timeout_ms=200)
        txn.add(topic, 0)
        txn.produce(topic, b"slow")
        eventually(lambda: describe(wire, txn.tid).transaction_state == "CompleteAbort", timeout_s=40)
        eventually(lambda: read(wire, topic).last_stable_offset == 2)
        assert read(wire, topic).values == []
        assert txn.end(True).error_code == E.PRODUCER_FENCED
        assert txn.produce(topic, b"slower") == E.INVALID_PRODUCER_EPOCH

    def test_version_2_producer_learns_its_new_epoch_by_aborting(
        self, wire: Wire, txn: TransactionWire, topic: str
    ) -> None:
        txn.init(timeout_ms=200)
        txn.produce(topic, b"slow", version=12)
        eventually(lambda: describe(wire, txn.tid).transaction_state == "CompleteAbort", timeout_s=40)
        assert txn.end(True, version=5, epoch=0).error_code == E.INVALID_TXN_STATE
        assert (txn.end(False, version=5, epoch=0).error_code, txn.epoch) == (0, 1)
        assert txn.produce(topic, b"again", version=12) == 0
        txn.end(True, version=5)
        eventually(lambda: read(wire, topic).values == [b"again"])

    @pytest.mark.parametrize("version", [9, 12])
    def test_a_producer_returns_with_its_previous_epoch_unless_another_has_come(
        self, wire: Wire, txn: TransactionWire, topic: str, version: int
    ) -> None:
        """KIP-588. A producer that was only too slow goes on with InitProducerId v3+."""
        txn.init(timeout_ms=200)
        slow = (txn.producer_id, txn.epoch)
        txn.add(topic, 0)
        assert txn.produce(topic, b"slow", version=version) == 0
        eventually(lambda: describe(wire, txn.tid).transaction_state == "CompleteAbort", timeout_s=40)
        for _ in range(2):  # the response may be lost
            returned = txn.init(believed=slow)
            assert (returned.error_code, returned.producer_id, returned.producer_epoch) == (0, slow[0], 1)
        txn.add(topic, 0)
        assert txn.produce(topic, b"again", version=version) == 0
        assert txn.end(True).error_code == 0
        eventually(lambda: read(wire, topic).values == [b"again"])
        successor = TransactionWire(wire, txn.tid)
        successor.init()
        assert txn.init(believed=slow).error_code == E.PRODUCER_FENCED


class TestBrokersApis:
    @pytest.mark.parametrize("version", [4, 5])
    def test_many_transactions_are_registered_or_verified_at_once(
        self, wire: Wire, txn: TransactionWire, topic: str, fresh_name: Fresh, version: int
    ) -> None:
        other = TransactionWire(wire, fresh_name("id"))
        txn.init()
        other.init()
        txn.add(topic, 0)

        def entry(of: TransactionWire, verify: bool, *partitions: int) -> AddPartitionsToTxnTransaction:
            topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
            return AddPartitionsToTxnTransaction(of.tid, of.producer_id, of.epoch, verify, topics)

        request = AddPartitionsToTxnRequest([entry(txn, True, 0, 1), entry(other, False, 1)])
        answer = wire.call(request, version)
        codes = {
            result.transactional_id: {
                partition.partition_index: partition.partition_error_code
                for of_topic in result.topic_results
                for partition in of_topic.results_by_partition
            }
            for result in answer.results_by_transaction
        }
        not_in_it = codes[txn.tid].pop(1)
        assert not_in_it in (E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE)
        assert codes == {txn.tid: {0: 0}, other.tid: {1: 0}}
        assert [state.topics[0].partitions for state in (describe(wire, txn.tid), describe(wire, other.tid))] == [
            [0],
            [1],
        ]

    def test_marker_for_a_partition_that_does_not_exist(self, wire: Wire, topic: str) -> None:
        marker = WritableTxnMarker(1, 0, False, [WritableTxnMarkerTopic(topic, [9])], 0)
        (answer,) = wire.call(WriteTxnMarkersRequest([marker]), 1).markers
        assert answer.topics[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION

    def test_marker_ends_an_open_transaction_by_hand(self, wire: Wire, txn: TransactionWire, topic: str) -> None:
        txn.init()
        txn.add(topic, 0)
        txn.produce(topic, b"stuck")
        marker = WritableTxnMarker(txn.producer_id, txn.epoch, False, [WritableTxnMarkerTopic(topic, [0])], 0)
        (answer,) = wire.call(WriteTxnMarkersRequest([marker]), 1).markers
        assert answer.topics[0].partitions[0].error_code == 0
        eventually(lambda: read(wire, topic).last_stable_offset == 2)
        assert read(wire, topic).values == []


class TestDescriptions:
    def test_transaction_is_described_and_listed(self, wire: Wire, txn: TransactionWire, topic: str) -> None:
        unknown = describe(wire, txn.tid)
        assert unknown.error_code == E.TRANSACTIONAL_ID_NOT_FOUND
        assert describe(wire, "").error_code == E.INVALID_REQUEST
        txn.init(timeout_ms=54_321)
        txn.add(topic, 1, 0)
        state = describe(wire, txn.tid)
        assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", 54_321)
        assert (state.producer_id, state.producer_epoch) == (txn.producer_id, txn.epoch)
        assert [(entry.topic, sorted(entry.partitions)) for entry in state.topics] == [(topic, [0, 1])]
        assert state.transaction_start_time_ms > 1_600_000_000_000

        def listed(request: ListTransactionsRequest, version: int = 2) -> dict[str, tuple[int, str]]:
            answer = wire.call(request, version)
            assert answer.error_code == 0
            found = {entry.transactional_id: entry for entry in answer.transaction_states}
            return {tid: (entry.producer_id, entry.transaction_state) for tid, entry in found.items()}

        expected = {txn.tid: (txn.producer_id, "Ongoing")}
        assert listed(ListTransactionsRequest(producer_id_filters=[txn.producer_id])) == expected
        assert listed(ListTransactionsRequest(transactional_id_pattern=txn.tid.replace("-", "[-]"))) == expected
        assert txn.tid in listed(ListTransactionsRequest(), version=0)
        assert txn.tid in listed(ListTransactionsRequest(state_filters=["Ongoing"]), version=1)
        assert txn.tid not in listed(ListTransactionsRequest(state_filters=["Empty"]))
        assert txn.tid not in listed(ListTransactionsRequest(duration_filter=3_600_000))
        wrong = wire.call(ListTransactionsRequest(state_filters=["Nonsense"]), 2)
        assert (wrong.unknown_state_filters, wrong.transaction_states) == (["Nonsense"], [])
        broken = wire.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert broken.error_code == E.INVALID_REGULAR_EXPRESSION

    def test_producers_of_a_partition_are_described(self, wire: Wire, txn: TransactionWire, topic: str) -> None:
        txn.init()
        txn.add(topic, 0)
        txn.produce(topic, b"a", b"b")
        answer = wire.call(DescribeProducersRequest([TopicRequest(topic, [0, 9])]), 0)
        found = {partition.partition_index: partition for partition in answer.topics[0].partitions}
        (producer,) = found[0].active_producers
        assert (producer.producer_id, producer.producer_epoch) == (txn.producer_id, txn.epoch)
        assert (producer.last_sequence, producer.current_txn_start_offset) == (1, 0)
        assert found[9].error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        txn.end(True)
        eventually(lambda: read(wire, topic).values == [b"a", b"b"])
        answer = wire.call(DescribeProducersRequest([TopicRequest(topic, [0])]), 0)
        (producer,) = answer.topics[0].partitions[0].active_producers
        assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (-1, 0)
