"""Group-aware InitProducerId and what follows from it, over TCP: who may commit offsets, who is fenced, who waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, PENDING_TRANSACTION, ErrorCode
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from support.broker import BrokerProcess
from support.group_aware_wire import GroupAwareWire
from support.group_wire import Member, commit, fetch, txn_commit
from support.transaction_wire import TransactionWire, read
from support.wire import Wire, retry

pytestmark = pytest.mark.oncelog_only(reason="the transaction extension")

E = ErrorCode
Fresh = Callable[[str], str]
Connect = Callable[..., Wire]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = ("--set", "group.transaction.max.partitions=50", "--set", "transaction.pending.wait.max.ms=300")
    with BrokerProcess(tmp_path_factory.mktemp("broker"), *settings) as broker:
        yield broker.address


@pytest.fixture
def connect(address: str) -> Iterator[Connect]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Wire(address, **options))


@pytest.fixture
def wire(connect: Connect) -> Wire:
    return connect(extension_version=1)


@pytest.fixture
def stock(connect: Connect) -> Wire:
    return connect()


@pytest.fixture
def topic(wire: Wire, fresh_name: Fresh) -> str:
    name = fresh_name("input")
    wire.create_topic(name, 4)
    return name


@pytest.fixture
def group(fresh_name: Fresh) -> str:
    return fresh_name("group")


@pytest.fixture
def producer(wire: Wire, fresh_name: Fresh) -> GroupAwareWire:
    return GroupAwareWire(wire, fresh_name("one"))


@pytest.fixture
def other(wire: Wire, fresh_name: Fresh) -> GroupAwareWire:
    return GroupAwareWire(wire, fresh_name("other"))


def stable_member(wire: Wire, group: str, *topics: str) -> Member:
    """The only member of its group, in a generation of its own."""
    member = Member(wire, group, topics=topics or ("t",))
    assert member.join().error_code == 0
    assert member.sync({member.member_id: b""}).error_code == 0
    return member


def decided_offset(wire: Wire, group: str, partition: tuple[str, int]) -> int:
    """The committed offset, when nothing is undecided any more."""
    found = retry(
        lambda: fetch(wire, group, [partition], stable=True)[partition],
        lambda got: got.error,
        PENDING_TRANSACTION,
        E.UNSTABLE_OFFSET_COMMIT,
    )
    assert found.error is E.NONE
    return found.offset


# ---- what is refused, and then changes nothing


def test_an_empty_group_id_is_invalid(producer: GroupAwareWire, topic: str) -> None:
    assert producer.ask("", 1, [(topic, 0)]).error_code == E.INVALID_GROUP_ID


@pytest.mark.parametrize("version", range(2, 6))
@pytest.mark.parametrize(("generation", "partitions"), [(1, []), (-1, [0]), (1, [0])])
def test_a_generation_or_partitions_without_a_group_are_invalid(
    producer: GroupAwareWire, topic: str, version: int, generation: int, partitions: list[int]
) -> None:
    asked = [(topic, index) for index in partitions]
    assert producer.ask(None, generation, asked, version=version).error_code == E.INVALID_REQUEST


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"partitions": [("{topic}", 4)]}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partitions": [("{topic}", 0), ("no such topic", 0)]}, E.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partitions": [("{topic}", index) for index in range(51)]}, E.INVALID_REQUEST),
        ({"timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"generation": 6}, E.ILLEGAL_GENERATION),
        ({"generation": -1}, E.ILLEGAL_GENERATION),
        ({"believed": (12345, 3)}, E.PRODUCER_FENCED),
    ],
)
def test_what_is_refused_changes_nothing(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str, change: dict[str, Any], code: ErrorCode
) -> None:
    assert producer.claim(group, 7, (topic, 0)) is E.NONE
    assert other.claim(group, 7, (topic, 1)) is E.NONE
    asked: dict[str, Any] = {"generation": 8, "partitions": [(topic, 0)], **change}
    asked["partitions"] = [(name.format(topic=topic), index) for name, index in asked["partitions"]]
    generation, partitions = asked.pop("generation"), asked.pop("partitions")
    assert other.ask(group, generation, partitions, **asked).error_code == code
    assert producer.commit_offset(group, (topic, 0), 1) is E.NONE, "it still owns its partition"
    assert other.commit_offset(group, (topic, 1), 1) is E.NONE, "its own epoch hasn't moved"


@pytest.mark.parametrize("named", [True, False])
def test_an_id_that_is_too_long_claims_nothing(
    producer: GroupAwareWire, wire: Wire, fresh_name: Fresh, topic: str, named: bool
) -> None:
    group = fresh_name("group").ljust(1000, "x")
    long_one = GroupAwareWire(wire, fresh_name("id").ljust(1001, "x"))
    assert long_one.ask(group, 8, [(topic, 0)], named=named).error_code == E.INVALID_REQUEST
    assert producer.claim(group, 7, (topic, 0)) is E.NONE, "a claim of generation 8 would refuse it"


def test_partitions_named_twice_count_once(producer: GroupAwareWire, group: str, topic: str) -> None:
    assert producer.claim(group, 1, *[(topic, 0)] * 60) is E.NONE


# ---- claims


def test_a_newer_generation_takes_over_and_the_one_before_is_fenced(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    assert producer.claim(group, 1, (topic, 0)) is E.NONE
    assert producer.produce(topic, b"lost", partition=3, version=12) == 0
    assert producer.commit_offset(group, (topic, 0), 5, 1) is E.NONE
    assert other.claim(group, 2, (topic, 0)) is E.NONE
    assert fetch(other.wire, group, [(topic, 0)], stable=True)[topic, 0].offset == -1, "aborted and complete"
    assert producer.commit_offset(group, (topic, 0), 6, 1) is not E.NONE
    assert producer.finish() is E.PRODUCER_FENCED
    seen = read(other.wire, topic, 3)
    assert (seen.values, seen.last_stable_offset) == ([], seen.high_watermark)
    assert other.commit_offset(group, (topic, 0), 7, 2) is E.NONE
    assert other.finish() is E.NONE
    assert decided_offset(other.wire, group, (topic, 0)) == 7


def test_disjoint_partitions_do_not_disturb_each_other(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    assert producer.claim(group, 1, (topic, 0)) is E.NONE
    assert producer.commit_offset(group, (topic, 0), 5, 1) is E.NONE
    assert other.claim(group, 1, (topic, 1)) is E.NONE
    assert producer.finish() is E.NONE
    assert decided_offset(other.wire, group, (topic, 0)) == 5


def test_a_decided_transaction_is_completed_as_decided(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    assert producer.claim(group, 1, (topic, 0)) is E.NONE
    assert producer.commit_offset(group, (topic, 0), 5, 1) is E.NONE
    assert producer.finish() is E.NONE
    assert other.claim(group, 2, (topic, 0)) is E.NONE
    assert fetch(other.wire, group, [(topic, 0)], stable=True)[topic, 0].offset == 5


def test_empty_partitions_release_what_the_id_held(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    assert producer.claim(group, 3, (topic, 0)) is E.NONE
    assert producer.claim(group, 3) is E.NONE
    assert other.init().error_code == 0
    assert other.commit_offset(group, (topic, 0), 1) is E.NONE
    assert other.ask(group, 2, [(topic, 0)]).error_code == E.ILLEGAL_GENERATION, "the generation has been"


def test_it_can_be_repeated_after_being_fenced(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    assert producer.claim(group, 1, (topic, 0), (topic, 1)) is E.NONE
    assert other.claim(group, 2, (topic, 0)) is E.NONE
    assert producer.commit_offset(group, (topic, 1), 1, 1) is E.INVALID_PRODUCER_EPOCH
    assert producer.claim(group, 2, (topic, 1)) is E.NONE
    assert producer.commit_offset(group, (topic, 1), 1, 2) is E.NONE
    assert other.commit_offset(group, (topic, 0), 1, 2) is E.NONE


def test_at_equal_generation_the_later_call_wins_five_times_and_then_it_is_enough(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    turns = [producer, other, producer, other, producer, other, producer]
    codes = [turn.claim(group, 4, (topic, 0)) for turn in turns]
    assert codes == [E.NONE] * 6 + [E.ILLEGAL_GENERATION]
    assert other.commit_offset(group, (topic, 0), 1, 4) is E.NONE, "the last that won"
    assert producer.claim(group, 5, (topic, 0)) is E.NONE, "a new generation is no fight"


def test_the_broker_gives_an_id_to_who_has_none(wire: Wire, group: str, topic: str) -> None:
    one, two = GroupAwareWire(wire, ""), GroupAwareWire(wire, "")
    for turn in (one, two):
        answer = turn.ask(group, 1, [(topic, 0)], named=False)
        assert answer.error_code == 0
        turn.take_over(answer)
    assert one.tid.startswith(group)
    assert one.tid != two.tid
    assert two.commit_offset(group, (topic, 0), 3, 1) is E.NONE
    assert one.commit_offset(group, (topic, 0), 3, 1) is not E.NONE
    assert two.finish() is E.NONE


def test_an_id_that_is_given_is_not_told_again(producer: GroupAwareWire, group: str, topic: str) -> None:
    assert producer.ask(group, 1, [(topic, 0)]).transactional_id is None


# ---- offset fencing


@pytest.mark.parametrize("version", range(6))
def test_an_outdated_stock_commit_gets_a_code_that_it_knows(
    producer: GroupAwareWire, stock: Wire, group: str, topic: str, fresh_name: Fresh, version: int
) -> None:
    assert producer.claim(group, 1, (topic, 0)) is E.NONE
    outdated = TransactionWire(stock, fresh_name("stock"))
    assert outdated.init(5 if version >= 5 else 4).error_code == 0
    codes = txn_commit(outdated, group, {(topic, 0): 9, (topic, 1): 9}, version)
    expected = E.INVALID_PRODUCER_EPOCH if version < 3 else E.PRODUCER_FENCED
    assert set(codes.values()) == {expected}, "all of it is refused"
    assert fetch(stock, group, None) == {}


def test_an_outdated_commit_of_an_extension_aware_client_is_told_why(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    assert producer.claim(group, 2, (topic, 0)) is E.NONE
    assert other.init().error_code == 0
    for generation in (-1, 1):
        assert other.commit_offset(group, (topic, 0), 1, generation) is CONCURRENT_PRODUCER_COMMIT
    assert other.commit_offset(group, (topic, 1), 1) is E.NONE


def test_a_plain_commit_keeps_the_claim(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    assert producer.claim(group, 2, (topic, 0)) is E.NONE
    assert commit(producer.wire, group, {(topic, 0): 3})[topic, 0] is E.NONE
    assert other.init().error_code == 0
    assert other.commit_offset(group, (topic, 0), 1, 1) is CONCURRENT_PRODUCER_COMMIT


def test_an_aborted_transaction_keeps_the_claim(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    assert producer.claim(group, 2, (topic, 0)) is E.NONE
    assert producer.commit_offset(group, (topic, 0), 1, 2) is E.NONE
    assert producer.finish(commit=False) is E.NONE
    assert other.init().error_code == 0
    assert other.commit_offset(group, (topic, 0), 1, 1) is CONCURRENT_PRODUCER_COMMIT


def test_stock_producers_with_pending_commits_are_fenced_and_make_no_claims(
    producer: GroupAwareWire, stock: Wire, group: str, topic: str, fresh_name: Fresh
) -> None:
    before = GroupAwareWire(stock, fresh_name("stock"))
    assert before.init().error_code == 0
    assert before.commit_offset(group, (topic, 0), 8) is E.NONE
    assert producer.claim(group, 1, (topic, 0)) is E.NONE
    assert before.finish() is E.PRODUCER_FENCED
    assert fetch(stock, group, [(topic, 0)], stable=True)[topic, 0].offset == -1


# ---- generations and members


def test_a_generation_above_that_of_the_members_is_illegal(producer: GroupAwareWire, group: str, topic: str) -> None:
    member = stable_member(producer.wire, group)
    assert producer.ask(group, member.generation + 1, [(topic, 0)]).error_code == E.ILLEGAL_GENERATION
    assert producer.claim(group, member.generation, (topic, 0)) is E.NONE


def test_a_generation_without_a_member_must_be_the_current_one(
    producer: GroupAwareWire, stock: Wire, group: str, topic: str, fresh_name: Fresh
) -> None:
    member = stable_member(producer.wire, group)
    assert producer.claim(group, member.generation, (topic, 0)) is E.NONE
    assert producer.commit_offset(group, (topic, 0), 1, member.generation) is E.NONE
    assert producer.commit_offset(group, (topic, 0), 1, member.generation - 1) is E.ILLEGAL_GENERATION
    as_stock = GroupAwareWire(stock, fresh_name("stock"))
    assert as_stock.init().error_code == 0
    assert as_stock.commit_offset(group, (topic, 1), 1, member.generation) is E.UNKNOWN_MEMBER_ID, "as in Kafka"


def test_claims_go_when_the_last_member_leaves(
    producer: GroupAwareWire, other: GroupAwareWire, group: str, topic: str
) -> None:
    member = stable_member(producer.wire, group)
    assert producer.claim(group, member.generation, (topic, 0)) is E.NONE
    assert other.init().error_code == 0
    assert other.commit_offset(group, (topic, 0), 1) is CONCURRENT_PRODUCER_COMMIT
    assert member.leave() is E.NONE
    assert other.commit_offset(group, (topic, 0), 1) is E.NONE
    assert other.ask(group, -1, [(topic, 1)]).error_code == 0, "no generation is recorded any more"


# ---- offset fetch


def pending(other: GroupAwareWire, group: str, topic: str) -> None:
    """Partition 0 has an offset and one that isn't decided, 1 has an offset, 2 has none, 3 only an undecided one."""
    assert commit(other.wire, group, {(topic, 0): 5, (topic, 1): 6})[topic, 0] is E.NONE
    assert other.init().error_code == 0
    assert other.commit_offset(group, (topic, 0), 50) is E.NONE
    assert other.commit_offset(group, (topic, 3), 50) is E.NONE


def fetch_raw(
    wire: Wire, group: str, topic: str, version: int, indexes: list[int] | None, *, stable: bool
) -> tuple[int, dict[int, tuple[int, int]]]:
    """The code of the group, and (offset, code) of each partition."""
    if version >= 8:
        topics = None if indexes is None else [OffsetFetchRequestTopics(topic, partition_indexes=indexes)]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=stable)
        answer: Any = wire.call(request, version).groups[0]
    else:
        old = None if indexes is None else [OffsetFetchRequestTopic(topic, indexes)]
        answer = wire.call(OffsetFetchRequest(group, old, require_stable=stable), version)
    found = {p.partition_index: (p.committed_offset, p.error_code) for t in answer.topics for p in t.partitions}
    return answer.error_code, found


@pytest.mark.parametrize("everything", [False, True], ids=["named", "everything"])
@pytest.mark.parametrize("aware", [True, False], ids=["extension-aware", "stock"])
@pytest.mark.parametrize("stable", [True, False], ids=["stable", "any"])
@pytest.mark.parametrize("version", range(1, 10))
def test_what_is_told_of_undecided_offsets(
    wire: Wire,
    stock: Wire,
    other: GroupAwareWire,
    group: str,
    topic: str,
    version: int,
    stable: bool,
    aware: bool,
    everything: bool,
) -> None:
    if (stable and version < 7) or (everything and version < 2):
        return  # can't be said
    pending(other, group, topic)
    asked = None if everything else [0, 1, 2, 3]
    code, found = fetch_raw(wire if aware else stock, group, topic, version, asked, stable=stable)
    if not everything:
        assert set(found) == {0, 1, 2, 3}, "none is left out"
    if version < 7:
        assert code == (E.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else 0)
        loading = (-1, int(E.COORDINATOR_LOAD_IN_PROGRESS))
        assert found == {0: loading, 1: (6, 0), 3: loading} | ({} if everything else {2: (-1, 0)})
    else:
        assert code == 0
        unstable = (-1, int(PENDING_TRANSACTION if aware else E.UNSTABLE_OFFSET_COMMIT))
        expected = {0: unstable if stable else (5, 0), 1: (6, 0)}
        if stable:
            expected[3] = unstable
        if not everything:
            expected = {2: (-1, 0), 3: (-1, 0), **expected}
        assert found == expected
