"""The error table and what older request versions are sent."""

from __future__ import annotations

import copy
import pickle

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode
from oncelog.broker.log.results import CorruptLog, InvalidRecords
from oncelog.client.consumer.errors import NoOffsetForPartitionError
from oncelog.client.values import TopicPartition
from oncelog.protocol import apis
from oncelog.protocol.errors import (
    CONCURRENT_PRODUCER_COMMIT,
    LONGEST_MESSAGE,
    PENDING_TRANSACTION,
    DecodeError,
    ErrorCode,
    KafkaError,
    MalformedTag,
    UnsupportedVersion,
    downgrade,
    error_code,
)

E = ErrorCode
PRODUCE, FETCH, OFFSET_FETCH, INIT_PRODUCER_ID, ADD_PARTITIONS, END_TXN, TXN_OFFSET_COMMIT = 0, 1, 9, 22, 24, 26, 28


def test_the_table_is_kafkas() -> None:
    theirs = {int(code): (code.name.upper(), code.retriable) for code in KioErrorCode}
    theirs = {number: row for number, row in theirs.items() if number <= 133}
    ours = {int(code): (code.name, code.retriable) for code in ErrorCode}
    assert {number: row[1] for number, row in ours.items()} == {number: row[1] for number, row in theirs.items()}
    assert {n: r[0].replace("_", "") for n, r in ours.items()} == {n: r[0].replace("_", "") for n, r in theirs.items()}


def test_every_code_has_a_sentence() -> None:
    texts = [code.text for code in ErrorCode]
    assert all(text.endswith(".") and text[0].isupper() for text in texts)
    assert len(set(texts)) == len(texts) == 135


def test_a_code_off_the_wire_that_nobody_knows_is_a_server_error() -> None:
    assert error_code(90) is E.PRODUCER_FENCED
    assert error_code(12345) is E.UNKNOWN_SERVER_ERROR


def test_a_kafka_error_says_code_and_message() -> None:
    error = KafkaError(E.PRODUCER_FENCED, "id 'a' moved on")
    assert (error.code, str(error), error.retriable) == (E.PRODUCER_FENCED, "PRODUCER_FENCED: id 'a' moved on", False)
    assert KafkaError(14).message == E.COORDINATOR_LOAD_IN_PROGRESS.text
    assert KafkaError(14).retriable


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(90, "x"),
        CorruptLog("file", 1, 2, "x"),
        InvalidRecords("x", [(1, "y")]),
        NoOffsetForPartitionError([TopicPartition("t", 0)]),
        DecodeError("x", 3),
        MalformedTag("x", 3, 9000),
        UnsupportedVersion("x", 9),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_being_sent_between_processes(error: Exception) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_an_error_that_is_kept_does_not_remember_who_got_it() -> None:
    kept = CorruptLog("file", 1, 2, "x")
    kept.__cause__ = OSError(5, "the disk is broken")
    for _ in range(2):
        with pytest.raises(CorruptLog) as caught:
            raise kept.anew()
        assert caught.value is not kept
        assert (vars(caught.value), caught.value.__cause__) == (vars(kept), kept.__cause__)
    assert kept.__traceback__ is None


@pytest.mark.parametrize(
    ("code", "api_key", "version", "sent"),
    [
        (E.PRODUCER_FENCED, INIT_PRODUCER_ID, 3, E.INVALID_PRODUCER_EPOCH),
        (E.PRODUCER_FENCED, INIT_PRODUCER_ID, 4, E.PRODUCER_FENCED),
        (E.PRODUCER_FENCED, ADD_PARTITIONS, 1, E.INVALID_PRODUCER_EPOCH),
        (E.PRODUCER_FENCED, ADD_PARTITIONS, 2, E.PRODUCER_FENCED),
        (E.PRODUCER_FENCED, END_TXN, 1, E.INVALID_PRODUCER_EPOCH),
        (E.PRODUCER_FENCED, END_TXN, 2, E.PRODUCER_FENCED),
        (E.PRODUCER_FENCED, TXN_OFFSET_COMMIT, 2, E.INVALID_PRODUCER_EPOCH),
        (E.PRODUCER_FENCED, TXN_OFFSET_COMMIT, 3, E.PRODUCER_FENCED),
        (E.PRODUCER_FENCED, PRODUCE, 13, E.INVALID_PRODUCER_EPOCH),
        (E.TRANSACTION_ABORTABLE, PRODUCE, 10, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, PRODUCE, 11, E.TRANSACTION_ABORTABLE),
        (E.TRANSACTION_ABORTABLE, TXN_OFFSET_COMMIT, 3, E.INVALID_TXN_STATE),
        (E.TRANSACTION_ABORTABLE, END_TXN, 3, E.UNKNOWN_PRODUCER_ID),
        (E.TRANSACTION_ABORTABLE, END_TXN, 4, E.TRANSACTION_ABORTABLE),
        (E.KAFKA_STORAGE_ERROR, PRODUCE, 3, E.NOT_LEADER_OR_FOLLOWER),
        (E.KAFKA_STORAGE_ERROR, PRODUCE, 4, E.KAFKA_STORAGE_ERROR),
        (E.KAFKA_STORAGE_ERROR, FETCH, 5, E.NOT_LEADER_OR_FOLLOWER),
        (E.CONCURRENT_TRANSACTIONS, PRODUCE, 11, E.NOT_ENOUGH_REPLICAS),
        (E.CONCURRENT_TRANSACTIONS, PRODUCE, 12, E.CONCURRENT_TRANSACTIONS),
        (E.CONCURRENT_TRANSACTIONS, TXN_OFFSET_COMMIT, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.CONCURRENT_TRANSACTIONS, TXN_OFFSET_COMMIT, 4, E.COORDINATOR_NOT_AVAILABLE),
        (E.CONCURRENT_TRANSACTIONS, TXN_OFFSET_COMMIT, 5, E.CONCURRENT_TRANSACTIONS),
        (E.NOT_COORDINATOR, PRODUCE, 13, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_LOAD_IN_PROGRESS, TXN_OFFSET_COMMIT, 1, E.COORDINATOR_NOT_AVAILABLE),
        (E.COORDINATOR_LOAD_IN_PROGRESS, TXN_OFFSET_COMMIT, 2, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.UNSTABLE_OFFSET_COMMIT, OFFSET_FETCH, 6, E.COORDINATOR_LOAD_IN_PROGRESS),
        (E.NONE, PRODUCE, 3, E.NONE),
        (E.INVALID_TXN_STATE, END_TXN, 0, E.INVALID_TXN_STATE),
    ],
)
def test_an_older_version_is_sent_a_code_that_it_knows(code: E, api_key: int, version: int, sent: E) -> None:
    assert downgrade(code, api_key, version) is sent
    assert downgrade(int(code), api_key, version) is sent


def test_a_downgrade_is_final() -> None:
    for cls in apis.all_apis():
        for version in cls.spec.versions:
            for code in ErrorCode:
                once = downgrade(code, cls.spec.key, version)
                assert downgrade(once, cls.spec.key, version) is once, (cls.__name__, version, code.name)


def test_the_extensions_codes_are_85_and_86() -> None:
    assert (int(CONCURRENT_PRODUCER_COMMIT), int(PENDING_TRANSACTION)) == (85, 86)


def test_message_of_an_error_fits_into_a_string_of_the_protocol() -> None:
    quoted = KafkaError(ErrorCode.INVALID_REQUEST, f"Topic {chr(0x1F600) * 32_000!r} is in the request twice.")
    assert len(quoted.message.encode()) < 2**15
    assert quoted.message.startswith("Topic '")
    assert quoted.message.endswith("...")
    longest = "x" * LONGEST_MESSAGE
    assert KafkaError(ErrorCode.INVALID_REQUEST, longest).message == longest
