"""Groups request by request, on oncelog and (with --kafka) on Apache Kafka: the same codes in the same places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest
from oncelog.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from oncelog.protocol.messages.find_coordinator import FindCoordinatorRequest
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.protocol.messages.list_groups import ListGroupsRequest
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from support.group_wire import Member, commit, fetch, served, subscription
from support.wire import Wire, eventually

E = ErrorCode
Fresh = Callable[[str], str]


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    with Wire(bootstrap) as wire:
        yield wire


@pytest.fixture
def group(wire: Wire, fresh_name: Fresh) -> str:
    return served(wire, fresh_name("group"))


@pytest.fixture
def topic(wire: Wire, fresh_name: Fresh) -> str:
    name = fresh_name("topic")
    wire.create_topic(name, 3)
    return name


@pytest.fixture
def member(bootstrap: str, group: str) -> Iterator[Callable[..., Member]]:
    """Make a member with a connection of its own."""
    with ExitStack() as stack:
        yield lambda **fields: Member(stack.enter_context(Wire(bootstrap)), group, **fields)


def stable_pair(member: Callable[..., Member], **fields: Any) -> tuple[Member, Member]:
    """(leader, follower), with an assignment each."""
    first = member(**fields)
    assert first.join().error_code == 0
    assert first.sync({first.member_id: b"alone"}).error_code == 0
    second = member(**fields)
    second.send_join()
    if second.joined().error_code == E.MEMBER_ID_REQUIRED:
        second.send_join()
    first.wait_for(E.REBALANCE_IN_PROGRESS)
    first.send_join()
    assert [one.joined().error_code for one in (first, second)] == [0, 0]
    leader, follower = (first, second) if first.leads else (second, first)
    follower.send_sync()
    assert leader.sync({leader.member_id: b"L", follower.member_id: b"F"}).assignment == b"L"
    assert follower.wire.receive().assignment == b"F"
    return leader, follower


def describe(wire: Wire, group: str, version: int = 5) -> DescribedGroup:
    (described,) = wire.call(DescribeGroupsRequest([group]), version).groups
    return described


# ---- FindCoordinator


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("key_type", [0, 1])
def test_the_coordinator_is_the_broker_that_was_asked(
    wire: Wire, bootstrap: str, fresh_name: Fresh, version: int, key_type: int
) -> None:
    if version == 0 and key_type == 1:
        return  # version 0 knows groups only
    key = fresh_name("key")
    wire.find_coordinator(key, key_type)
    if version < 4:
        answer = wire.call(FindCoordinatorRequest(key, key_type), version)
        assert (answer.error_code, f"{answer.host}:{answer.port}") == (0, bootstrap.replace("localhost", answer.host))
        return
    keys = [key, fresh_name("key"), ""]
    coordinators = wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys), version).coordinators
    assert [found.key for found in coordinators] == keys
    assert {found.error_code for found in coordinators} == {0}
    assert len({(found.node_id, found.host, found.port) for found in coordinators}) == 1


@pytest.mark.parametrize("key_type", [3, 65, -1])
def test_a_key_type_that_does_not_exist_is_an_invalid_request(wire: Wire, key_type: int) -> None:
    refused = wire.call(FindCoordinatorRequest("k", key_type), 3)
    assert (refused.error_code, refused.node_id, refused.host, refused.port) == (E.INVALID_REQUEST, -1, "", -1)
    (found,) = wire.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["k"]), 4).coordinators
    assert (found.error_code, found.node_id) == (E.INVALID_REQUEST, -1)


# ---- DescribeGroups


def test_a_group_that_rebalances_shows_the_assignments_of_the_generation_before(
    wire: Wire, member: Callable[..., Member]
) -> None:
    """kafka-consumer-groups --describe shows by them which member reads which partition."""
    first = member()
    assert first.join().error_code == 0
    assert first.sync({first.member_id: b"alone"}).error_code == 0
    second = member()
    second.send_join()
    if second.joined().error_code == E.MEMBER_ID_REQUIRED:
        second.send_join()
    first.wait_for(E.REBALANCE_IN_PROGRESS)
    described = describe(wire, first.group)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {found.member_id: (found.member_assignment, found.member_metadata) for found in described.members} == {
        first.member_id: (b"alone", b""),
        second.member_id: (b"", b""),
    }


# ---- membership, every version


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_beats_and_leaves(member: Callable[..., Member], version: int) -> None:
    one = member()
    first = one.join(version)
    assert (first.error_code, first.generation_id) == (0, 1)
    assert first.leader == first.member_id == one.member_id
    assert [(found.member_id, found.metadata) for found in first.members] == [(one.member_id, subscription("t"))]
    assert (first.protocol_name, first.protocol_type) == ("range", "consumer" if version >= 7 else None)
    assert not first.skip_assignment
    sync_version = min(version, 5)
    synced = one.sync({one.member_id: b"all"}, sync_version)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    if sync_version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")
    assert one.heartbeat(min(version, 4)) is E.NONE
    assert one.leave(min(version, 5)) is E.NONE
    assert one.heartbeat(min(version, 4)) is E.UNKNOWN_MEMBER_ID
    assert one.leave(min(version, 5)) is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(10))
def test_members_without_a_place_are_told_so(member: Callable[..., Member], version: int) -> None:
    stranger = member(member_id="stranger", generation=1, protocol="range")
    answer = stranger.join(version)
    assert (answer.error_code, answer.member_id, answer.members) == (E.UNKNOWN_MEMBER_ID, "stranger", [])
    assert stranger.sync(version=min(version, 5)).error_code == E.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat(min(version, 4)) is E.UNKNOWN_MEMBER_ID
    assert stranger.leave(min(version, 5)) is E.UNKNOWN_MEMBER_ID


def test_session_timeout_and_group_id_are_checked(member: Callable[..., Member]) -> None:
    assert member(session_ms=1).join().error_code == E.INVALID_SESSION_TIMEOUT
    nameless = member(member_id="m", generation=1, protocol="range")
    nameless.group = ""
    assert nameless.join().error_code == E.INVALID_GROUP_ID
    assert nameless.sync().error_code == E.INVALID_GROUP_ID
    assert nameless.heartbeat() is E.INVALID_GROUP_ID
    request = LeaveGroupRequest("", members=[MemberIdentity("m")])
    assert nameless.wire.call(request, 5).error_code == E.INVALID_GROUP_ID


def test_two_members_share_a_generation(member: Callable[..., Member]) -> None:
    leader, follower = stable_pair(member)
    assert leader.generation == follower.generation == 2
    assert leader.told is not None
    assert follower.told is not None
    assert {found.member_id for found in leader.told.members} == {leader.member_id, follower.member_id}
    assert follower.told.members == []
    assert follower.leave() is E.NONE
    leader.wait_for(E.REBALANCE_IN_PROGRESS)
    assert leader.join().generation_id == 3


def test_an_older_generation_is_refused(member: Callable[..., Member], topic: str) -> None:
    leader, _ = stable_pair(member)
    leader.generation = 1
    assert leader.heartbeat() is E.ILLEGAL_GENERATION
    assert leader.sync().error_code == E.ILLEGAL_GENERATION
    assert leader.commit((topic, 0), 1) is E.ILLEGAL_GENERATION


def test_a_member_without_a_common_protocol_is_refused(member: Callable[..., Member]) -> None:
    stable_pair(member)
    assert member(strategies=("something-else",)).join().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert member(protocol_type="connect").join().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert member(strategies=()).join().error_code == E.INCONSISTENT_GROUP_PROTOCOL


def test_sync_names_the_protocol_from_version_5_on(member: Callable[..., Member]) -> None:
    leader, _ = stable_pair(member)
    leader.protocol = "other"
    assert leader.sync().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    leader.protocol = None
    assert leader.sync().error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert leader.sync(version=4).assignment == b"L"


def test_a_member_whose_session_ends_is_dropped(member: Callable[..., Member]) -> None:
    leader, _ = stable_pair(member, session_ms=6000)
    leader.wait_for(E.REBALANCE_IN_PROGRESS, timeout_s=20)
    assert len(leader.join().members) == 1


# ---- static members


def test_a_static_member_takes_its_place_over(member: Callable[..., Member]) -> None:
    leader = member(instance="a")
    leader.join()
    leader.sync({leader.member_id: b"mine"})
    back = member(instance="a")
    answer = back.join()
    assert (answer.error_code, answer.generation_id, answer.skip_assignment) == (0, 1, True)
    assert back.member_id != leader.member_id
    assert back.sync().assignment == b"mine"
    assert leader.heartbeat() is E.FENCED_INSTANCE_ID
    assert leader.sync().error_code == E.FENCED_INSTANCE_ID
    assert leader.join().error_code == E.FENCED_INSTANCE_ID
    assert leader.leave() is E.FENCED_INSTANCE_ID
    assert back.heartbeat() is E.NONE


def test_a_static_leader_before_version_9_is_told_of_another_leader(member: Callable[..., Member]) -> None:
    leader = member(instance="a")
    leader.join(8)
    leader.sync({leader.member_id: b"mine"})
    back = member(instance="a")
    assert back.join(8).leader == leader.member_id
    assert back.sync().assignment == b"mine"


def test_an_administrator_removes_several_members(wire: Wire, group: str, member: Callable[..., Member]) -> None:
    leader = member(instance="a")
    leader.join()
    leader.sync({})
    members = [MemberIdentity("", "a"), MemberIdentity("", "nobody"), MemberIdentity("stranger")]
    answer = wire.call(LeaveGroupRequest(group, members=members), 4)
    unknown = E.UNKNOWN_MEMBER_ID
    assert [(left.group_instance_id, left.error_code) for left in answer.members] == [
        ("a", 0),
        ("nobody", unknown),
        (None, unknown),
    ]
    assert describe(wire, group).group_state == "Empty"


# ---- offsets


@pytest.mark.parametrize("version", range(2, 10))
def test_simple_consumers_commit_without_membership(wire: Wire, group: str, topic: str, version: int) -> None:
    codes = commit(wire, group, {(topic, 0): 5, (topic, 2): 7}, version, metadata="note")
    assert set(codes.values()) == {E.NONE}
    for asked in range(1, 10):
        found = fetch(wire, group, [(topic, 0), (topic, 1)], asked)
        assert (found[topic, 0].offset, found[topic, 0].metadata, found[topic, 0].error) == (5, "note", E.NONE)
        assert (found[topic, 1].offset, found[topic, 1].metadata) == (-1, "")
        if asked >= 2:
            assert {where: item.offset for where, item in fetch(wire, group, None, asked).items()} == {
                (topic, 0): 5,
                (topic, 2): 7,
            }


@pytest.mark.parametrize("version", range(2, 10))
def test_members_commit_in_their_generation(
    wire: Wire, topic: str, member: Callable[..., Member], version: int
) -> None:
    one = member()
    one.join()
    assert one.commit((topic, 0), 1, version) is E.REBALANCE_IN_PROGRESS
    one.sync({})
    assert one.commit((topic, 0), 5, version) is E.NONE
    assert commit(wire, one.group, {(topic, 0): 6}, version)[topic, 0] is E.UNKNOWN_MEMBER_ID
    one.member_id = "stranger"
    assert one.commit((topic, 0), 7, version) is E.UNKNOWN_MEMBER_ID
    assert fetch(wire, one.group, [(topic, 0)])[topic, 0].offset == 5


@pytest.mark.parametrize("version", [8, 9])
def test_a_generation_of_an_unknown_group_is_refused(topic: str, member: Callable[..., Member], version: int) -> None:
    stranger = member(member_id="m", generation=3)
    expected = E.GROUP_ID_NOT_FOUND if version >= 9 else E.ILLEGAL_GENERATION
    assert stranger.commit((topic, 0), 1, version) is expected


def test_wrong_partitions_and_long_metadata_are_refused_by_themselves(wire: Wire, group: str, topic: str) -> None:
    codes = commit(wire, group, {(topic, 0): 1, (topic, 3): 1, ("no-such-topic", 0): 1})
    unknown = E.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {(topic, 0): E.NONE, (topic, 3): unknown, ("no-such-topic", 0): unknown}
    assert commit(wire, group, {(topic, 1): 1}, metadata="x" * 4097)[topic, 1] is E.OFFSET_METADATA_TOO_LARGE
    assert commit(wire, group, {(topic, 1): 2}, metadata=None)[topic, 1] is E.NONE
    assert fetch(wire, group, [(topic, 1)])[topic, 1].metadata == ""


@pytest.mark.oncelog_only(reason="in Kafka the time of expiry overflows")
@pytest.mark.parametrize("version", range(2, 5))
def test_an_offset_may_be_kept_for_the_longest_time_that_a_request_can_say(
    wire: Wire, group: str, topic: str, version: int
) -> None:
    codes = commit(wire, group, {(topic, 0): 5}, version, retention_time_ms=(1 << 63) - 1)
    assert codes == {(topic, 0): E.NONE}
    assert fetch(wire, group, [(topic, 0)])[topic, 0].offset == 5


def test_offsets_of_several_groups_are_fetched_at_once(wire: Wire, fresh_name: Fresh, topic: str) -> None:
    names = [served(wire, fresh_name("group")) for _ in range(3)]
    for number, name in enumerate(names[:2]):
        commit(wire, name, {(topic, 0): number})
    asked = [
        OffsetFetchRequestGroup(names[0], topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0, 1])]),
        OffsetFetchRequestGroup(names[1], topics=None),
        OffsetFetchRequestGroup(names[2], topics=None),
    ]
    for version in (8, 9):
        groups = wire.call(OffsetFetchRequest(groups=asked), version).groups
        told = {
            found.group_id: [part.committed_offset for item in found.topics for part in item.partitions]
            for found in groups
        }
        assert told == {names[0]: [0, -1], names[1]: [1], names[2]: []}
        assert {found.error_code for found in groups} == {0}


def test_offsets_are_deleted_unless_a_member_subscribes(
    wire: Wire, group: str, topic: str, member: Callable[..., Member]
) -> None:
    commit(wire, group, {(topic, 0): 1, (topic, 1): 2})

    def delete(*partitions: int, name: str = group) -> tuple[int, list[int]]:
        wanted = [OffsetDeleteRequestPartition(index) for index in partitions]
        answer = wire.call(OffsetDeleteRequest(name, [OffsetDeleteRequestTopic(topic, wanted)]), 0)
        return answer.error_code, [part.error_code for found in answer.topics for part in found.partitions]

    assert delete(0) == (0, [0])
    one = member(topics=(topic,))
    one.join()
    one.sync({})
    assert delete(1) == (0, [E.GROUP_SUBSCRIBED_TO_TOPIC])
    one.leave()
    assert delete(1) == (0, [0])
    assert fetch(wire, group, None) == {}
    assert delete(0, name="no-such-group") == (E.GROUP_ID_NOT_FOUND, [])


def test_offsets_of_a_deleted_topic_do_not_outlive_it(wire: Wire, group: str, topic: str) -> None:
    commit(wire, group, {(topic, 0): 5})
    deleted = wire.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), 5)
    assert deleted.responses[0].error_code == 0
    eventually(lambda: fetch(wire, group, None) == {})


# ---- looking at groups


@pytest.mark.parametrize("version", range(7))
def test_a_group_is_described(wire: Wire, member: Callable[..., Member], version: int) -> None:
    one = member(instance="i")
    one.join()
    one.sync({one.member_id: b"assigned"})
    found = describe(wire, one.group, version)
    assert (found.error_code, found.group_state) == (0, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (seen,) = found.members
    assert (seen.member_id, seen.client_id, seen.client_host) == (one.member_id, "wire", "/127.0.0.1")
    assert (seen.member_metadata, seen.member_assignment) == (subscription("t"), b"assigned")
    assert seen.group_instance_id == ("i" if version >= 4 else None)
    assert found.authorized_operations == -(2**31)
    one.leave()
    found = describe(wire, one.group, version)
    assert (found.group_state, found.protocol_data, found.members) == ("Empty", "", [])


@pytest.mark.parametrize("version", [0, 5, 6])
def test_an_unknown_group_is_described_as_dead(wire: Wire, group: str, version: int) -> None:
    found = describe(wire, group, version)
    assert (found.group_state, found.members) == ("Dead", [])
    assert found.error_code == (E.GROUP_ID_NOT_FOUND if version >= 6 else 0)


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(wire: Wire, topic: str, member: Callable[..., Member], version: int) -> None:
    one = member()
    one.join()
    one.sync({})
    simple = f"{one.group}-simple"
    commit(wire, simple, {(topic, 0): 1})
    listed = {found.group_id: found for found in wire.call(ListGroupsRequest(), version).groups}
    assert (listed[one.group].protocol_type, listed[simple].protocol_type) == ("consumer", "")
    if version >= 4:
        assert (listed[one.group].group_state, listed[simple].group_state) == ("Stable", "Empty")
        for state, expected in (("stable", {one.group}), ("Empty", {simple}), ("Dead", set())):
            found = {item.group_id for item in wire.call(ListGroupsRequest([state]), version).groups}
            assert found & {one.group, simple} == expected
    if version >= 5:
        assert listed[one.group].group_type == "classic"
        of_type = {item.group_id for item in wire.call(ListGroupsRequest([], ["Classic"]), version).groups}
        assert {one.group, simple} <= of_type
        assert wire.call(ListGroupsRequest([], ["share"]), version).groups == []


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_when_they_have_no_members(
    wire: Wire, topic: str, member: Callable[..., Member], version: int
) -> None:
    one = member()
    one.join()
    one.sync({})
    one.commit((topic, 0), 3)

    def delete(*groups: str) -> dict[str, int]:
        answer = wire.call(DeleteGroupsRequest(list(groups)), version)
        return {result.group_id: result.error_code for result in answer.results}

    unknown = f"{one.group}-unknown"
    assert delete(one.group, unknown) == {one.group: E.NON_EMPTY_GROUP, unknown: E.GROUP_ID_NOT_FOUND}
    one.leave()
    assert delete(one.group) == {one.group: 0}
    assert describe(wire, one.group).group_state == "Dead"
    assert fetch(wire, one.group, None) == {}
