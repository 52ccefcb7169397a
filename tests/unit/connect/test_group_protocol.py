"""The Connect protocol byte for byte: the literals were written by Kafka Connect 4.1."""

from __future__ import annotations

from typing import Any

import pytest
from oncelog.connect.group.leader import Leader
from oncelog.connect.group.protocol import (
    CONFIG_MISMATCH,
    Assignment,
    Change,
    ConnectProtocol,
    WorkerState,
    decode_assignment,
    decode_worker_state,
    encode_assignment,
    encode_worker_state,
    protocol_named,
    running,
)
from oncelog.connect.stores.cluster_config import ClusterConfigState
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.protocol.codec import DecodeError

EAGER, COMPATIBLE, SESSIONED = ConnectProtocol.EAGER, ConnectProtocol.COMPATIBLE, ConnectProtocol.SESSIONED

LEADER = "00086c65616465722d31000e687474703a2f2f683a383038332f0000000000000011"
ASSIGNED = (
    "00000003000464622d3700000001ffffffff000566696c657300000003ffffffff00000000000000020004687474700000000100000001"
)
REVOKED = "0000000200036f6c6400000002ffffffff00000000000566696c65730000000100000001"
CHANGED = LEADER + ASSIGNED + REVOKED + "00007530"
URL_AND_OFFSET = "000e687474703a2f2f683a383038332f0000000000000011"


def task(connector: str, number: int) -> ConnectorTaskId:
    return ConnectorTaskId(connector, number)


WORK = Change(("db-7", "files"), (task("files", 0), task("files", 2), task("http", 1)))
STOPPED = Change(("old",), (task("old", 0), task("files", 1)))
CHANGE = Assignment("leader-1", "http://h:8083/", 17, WORK, STOPPED, 30_000)
MISMATCH = Assignment("leader-1", "http://h:8083/", 17, error=CONFIG_MISMATCH)

ASSIGNMENTS = [
    (EAGER, Assignment("leader-1", "http://h:8083/", 17, WORK), "00000000" + LEADER + ASSIGNED),
    (EAGER, MISMATCH, "00000001" + LEADER + "00000000"),
    (COMPATIBLE, CHANGE, "00010000" + CHANGED),
    (COMPATIBLE, MISMATCH, "00010001" + LEADER + "00000000" * 3),
    (SESSIONED, CHANGE, "00020000" + CHANGED),
    (SESSIONED, MISMATCH, "00020001" + LEADER + "00000000" * 3),
]
STATES = [
    (
        EAGER,
        WorkerState("http://127.0.0.1:8083/", 42),
        "00000016687474703a2f2f3132372e302e302e313a383038332f000000000000002a",
    ),
    (COMPATIBLE, WorkerState("http://h:8083/", -1), "0001000e687474703a2f2f683a383038332f" + "ff" * 12),
    (COMPATIBLE, WorkerState("http://h:8083/", 17, CHANGE), "0001" + URL_AND_OFFSET + "0000008500010000" + CHANGED),
    (SESSIONED, WorkerState("http://h:8083/", -1), "0002000e687474703a2f2f683a383038332f" + "ff" * 12),
    (SESSIONED, WorkerState("http://h:8083/", 17, CHANGE), "0002" + URL_AND_OFFSET + "0000008500020000" + CHANGED),
]


@pytest.mark.parametrize(("protocol", "assignment", "literal"), ASSIGNMENTS)
def test_assignments_are_javas_bytes(protocol: ConnectProtocol, assignment: Assignment, literal: str) -> None:
    assert encode_assignment(assignment, protocol).hex() == literal
    assert decode_assignment(bytes.fromhex(literal)) == assignment


@pytest.mark.parametrize(("protocol", "state", "literal"), STATES)
def test_worker_states_are_javas_bytes(protocol: ConnectProtocol, state: WorkerState, literal: str) -> None:
    assert encode_worker_state(state, protocol).hex() == literal
    assert decode_worker_state(bytes.fromhex(literal)) == state


def test_the_eager_protocol_drops_what_it_has_no_field_for() -> None:
    state = WorkerState("http://h:8083/", 17, CHANGE)
    assert decode_worker_state(encode_worker_state(state, EAGER)) == WorkerState("http://h:8083/", 17)
    assert decode_assignment(encode_assignment(CHANGE, EAGER)) == Assignment("leader-1", "http://h:8083/", 17, WORK)


@pytest.mark.parametrize("literal", ["", "00", "0002", "ffff000000", "0001000e68"])
def test_bytes_that_are_no_metadata_are_refused(literal: str) -> None:
    with pytest.raises(DecodeError):
        decode_worker_state(bytes.fromhex(literal))
    with pytest.raises(DecodeError):
        decode_assignment(bytes.fromhex(literal))


def test_protocols_are_offered_from_the_preferred_one_down() -> None:
    assert [each.value for each in SESSIONED.offered()] == ["sessioned", "compatible", "default"]
    assert [each.value for each in COMPATIBLE.offered()] == ["compatible", "default"]
    assert [each.value for each in EAGER.offered()] == ["default"]
    assert protocol_named("sessioned") is SESSIONED
    with pytest.raises(DecodeError, match=r"'range'.*sessioned"):
        protocol_named("range")


def test_a_worker_runs_what_it_ran_without_the_revoked_and_with_the_assigned() -> None:
    before = Assignment("leader-0", "http://g/", 3, Change(("a", "old"), (task("files", 1), task("a", 0))))
    after = running(before, CHANGE, SESSIONED)
    assert after.assigned.connectors == ("a", "db-7", "files")
    assert after.assigned.tasks == (task("a", 0), task("files", 0), task("files", 2), task("http", 1))
    assert (after.leader, after.leader_url, after.config_offset) == ("leader-1", "http://h:8083/", 17)
    assert running(before, MISMATCH, SESSIONED).assigned.work == before.assigned.work
    assert not running(before, MISMATCH, EAGER).assigned.work
    assert running(None, CHANGE, SESSIONED).assigned == WORK


CONFIG = ClusterConfigState(
    offset=20, connector_configs={"files": {}, "http": {}}, task_counts={"files": 2, "http": 1}
)  # fmt: skip


def assign(protocol: ConnectProtocol, members: dict[str, WorkerState]) -> dict[str, Assignment]:
    encoded = {member: encode_worker_state(state, protocol) for member, state in members.items()}
    answers = Leader(300_000).assign(
        "w1", protocol, encoded, CONFIG, completed_generation_id=-1, generation_id=1, now_ms=0
    )
    return {member: decode_assignment(answer) for member, answer in answers.items()}


@pytest.mark.parametrize("protocol", list(ConnectProtocol))
def test_the_leader_divides_connectors_and_tasks(protocol: ConnectProtocol) -> None:
    answers = assign(protocol, {"w1": WorkerState("http://1/", 20), "w2": WorkerState("http://2/", 7)})
    assert {(each.leader, each.leader_url, each.config_offset, each.error) for each in answers.values()} == {
        ("w1", "http://1/", 20, 0)
    }
    assert answers["w1"].assigned.connectors == ("files",)
    assert answers["w2"].assigned.connectors == ("http",)
    assert sorted(answers["w1"].assigned.tasks + answers["w2"].assigned.tasks) == [
        task("files", 0),
        task("files", 1),
        task("http", 0),
    ]
    assert {len(answers["w1"].assigned.tasks), len(answers["w2"].assigned.tasks)} == {1, 2}


@pytest.mark.parametrize("protocol", list(ConnectProtocol))
def test_the_leader_knows_who_runs_what(protocol: ConnectProtocol) -> None:
    leader = Leader(300_000)
    assert leader.owner_url("files") is None
    held = Assignment("w1", "http://1/", 20, Change(("files",), (task("files", 0), task("files", 1))))
    states = {"w1": WorkerState("http://1/", 20, held), "w2": WorkerState("http://2/", 20)}
    encoded = {member: encode_worker_state(state, protocol) for member, state in states.items()}
    answers = leader.assign("w1", protocol, encoded, CONFIG, completed_generation_id=-1, generation_id=1, now_ms=0)
    for member, state in states.items():
        work = running(state.assignment, decode_assignment(answers[member]), protocol).assigned
        assert work.connectors
        assert work.tasks
        owned: list[Any] = [*work.connectors, *work.tasks]
        assert {leader.owner_url(each) for each in owned} == {state.url}
    assert leader.owner_url("nobody") is None
    assert leader.owner_url(task("files", 9)) is None


@pytest.mark.parametrize("protocol", list(ConnectProtocol))
def test_a_leader_that_is_behind_assigns_nothing_and_says_so(protocol: ConnectProtocol) -> None:
    answers = assign(protocol, {"w1": WorkerState("http://1/", 19), "w2": WorkerState("http://2/", 21)})
    mismatch = Assignment("w1", "http://1/", 21, error=CONFIG_MISMATCH)
    assert answers == {"w1": mismatch, "w2": mismatch}
