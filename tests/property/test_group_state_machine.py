"""Random lives of a group: members that come, go, stall and come back, a disk that is slow or loses what it wasn't
given time for, a coordinator that crashes.

Whatever happens: a generation has one leader, one protocol and one assignment; what a member was told stays true after
a crash; no two members of a generation own the same thing; every request is answered; and when the trouble is over,
everybody who is still there ends up with an assignment.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.messages.join_group import JoinGroupResponse
from oncelog.protocol.messages.sync_group import SyncGroupResponse
from support.group_world import GroupWorld
from support.virtual_time import VirtualTimeLoop

E = ErrorCode
SESSION_MS = 10_000
REBALANCE_MS = 15_000
RETRIED = {E.REBALANCE_IN_PROGRESS, E.ILLEGAL_GENERATION, E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE}


@dataclass
class Told:
    """Everything that members were told, to be compared."""

    leaders: dict[tuple[int, int], str] = field(default_factory=dict)
    protocols: dict[tuple[int, int], str | None] = field(default_factory=dict)
    assignments: dict[tuple[int, str], bytes] = field(default_factory=dict)
    owners: dict[tuple[int, bytes], str] = field(default_factory=dict)

    def joined(self, crashes: int, response: JoinGroupResponse) -> None:
        # A generation is in the log only when its assignment is: after a crash its number may be given anew.
        generation = crashes, response.generation_id
        if response.members and not response.skip_assignment:
            assert self.leaders.setdefault(generation, response.member_id) == response.member_id, "two leaders"
        assert self.protocols.setdefault(generation, response.protocol_name) == response.protocol_name
        assert any(member.member_id == response.member_id for member in response.members) or not response.members

    def assigned(self, generation: int, who: str, assignment: bytes) -> None:
        assert self.assignments.setdefault((generation, who), assignment) == assignment, "told two things"
        if assignment:
            assert self.owners.setdefault((generation, assignment), who) == who, "two owners"


@dataclass
class Client:
    """A consumer as they are: it joins, assigns when it leads, beats, and begins anew when it is told to."""

    world: GroupWorld
    told: Told
    name: str
    instance: str | None
    strategies: list[tuple[str, bytes]]
    member_id: str = ""
    generation: JoinGroupResponse | None = None
    assignment: bytes | None = None
    fenced: bool = False
    joining: asyncio.Future[JoinGroupResponse] | None = None
    syncing: asyncio.Future[SyncGroupResponse] | None = None

    @property
    def who(self) -> str:
        return self.instance or self.member_id

    def lost_connection(self) -> None:
        """The broker is gone: whatever was asked is asked again."""
        self.joining = self.syncing = None

    def step(self, crashes: int) -> None:
        """One thing that is due."""
        if self.fenced:
            return
        if self.joining is not None:
            if self.joining.done():
                self._on_joined(crashes, self.joining.result())
        elif self.syncing is not None:
            if self.syncing.done():
                self._on_synced(self.syncing.result())
        elif self.generation is None:
            self.joining = self.world.join(
                self.member_id,
                instance=self.instance,
                protocols=self.strategies,
                session_ms=SESSION_MS,
                rebalance_ms=REBALANCE_MS,
            )
        elif self.assignment is None:
            self._sync(self.generation)
        else:
            self._act_on(self.world.heartbeat(self.generation, instance=self.instance))

    def _sync(self, generation: JoinGroupResponse) -> None:
        assignments = None
        if generation.leader == self.member_id and not generation.skip_assignment:
            mark = f"{generation.generation_id}/{id(generation)}"
            assignments = {
                member.member_id: f"{mark}/{number}".encode() for number, member in enumerate(generation.members)
            }
        try:
            self.syncing = self.world.sync(generation, assignments, instance=self.instance)
        except KafkaError as error:
            self._act_on(error.code)

    def _on_joined(self, crashes: int, response: JoinGroupResponse) -> None:
        self.joining = None
        if response.error_code == E.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code:
            self._act_on(ErrorCode(response.error_code))
        else:
            self.told.joined(crashes, response)
            self.member_id, self.generation, self.assignment = response.member_id, response, None

    def _on_synced(self, response: SyncGroupResponse) -> None:
        self.syncing = None
        if response.error_code:
            self._act_on(ErrorCode(response.error_code))
        else:
            assert self.generation is not None
            self.assignment = response.assignment
            self.told.assigned(self.generation.generation_id, self.who, response.assignment)

    def _act_on(self, code: ErrorCode) -> None:
        if code is E.NONE:
            return
        self.generation = self.assignment = None
        if code is E.FENCED_INSTANCE_ID:
            self.fenced = True
        elif code is E.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        else:
            assert code in RETRIED, code


class Life:
    """One history."""

    def __init__(self, world: GroupWorld) -> None:
        self.world = world
        self.told = Told()
        self.clients: list[Client] = []
        self.crashes = 0

    async def run(self, history: list[tuple[str, int]]) -> None:
        self.world.log.disk.flush_on_ask = False
        async with self.world:
            for what, number in history:
                await self._do(what, number)
                await self._breathe()
            await self._calm_down()

    async def _do(self, what: str, number: int) -> None:
        client = self.clients[number % len(self.clients)] if self.clients else None
        if what == "new":
            instance = f"static-{number % 3}" if number % 2 else None
            offered = [("range", b"r"), ("sticky", b"s")][:: -1 if number % 5 == 0 else 1]
            self.clients.append(Client(self.world, self.told, f"c{len(self.clients)}", instance, offered))
        elif what == "wait":
            await asyncio.sleep(number / 10)
        elif what == "flush":
            self.world.log.disk.flush()
        elif what == "fail":
            self.world.log.disk.fail()
        elif what == "crash":
            await self.world.restart(lost=True)
            self.crashes += 1
            for each in self.clients:
                each.lost_connection()
        elif what == "everybody":
            for each in self.clients:
                each.step(self.crashes)
        elif client is None:
            return
        elif what == "step":
            client.step(self.crashes)
        elif what == "reconnect":
            client.lost_connection()
        elif what == "vanish":
            self.clients.remove(client)
        elif what == "leave":
            if client.member_id:
                self.world.leave(client.member_id)
            self.clients.remove(client)
        elif what == "resubscribe":
            client.strategies = [(name, f"{number}".encode()) for name, _ in client.strategies]
            if client.joining is None and client.syncing is None:
                client.generation = client.assignment = None

    async def _breathe(self) -> None:
        for _ in range(4):
            await asyncio.sleep(0)
        group = self.world.coordinator.group("g")
        if group is not None:
            assert (group.state.value == "Empty") == (not group.members) or group.state.value == "PreparingRebalance"
            assert group.leader_id is None or group.leader_id in group.members
            assert not group.pending_join & set(group.members)
            assert group.pending_sync <= set(group.members)
            assert {m.group_instance_id: i for i, m in group.members.items() if m.is_static} == group.static_members

    async def _calm_down(self) -> None:
        """The disk works, time passes, clients do what they should: within a few time-outs everybody is served."""
        disk = self.world.log.disk
        disk.flush()
        disk.flush_on_ask = True
        for _ in range(600):
            await asyncio.sleep(0.2)
            for client in self.clients:
                client.step(self.crashes)
            await self._breathe()
        alive = [client for client in self.clients if not client.fenced]
        for client in alive:
            assert client.assignment, (client.who, self.world.state())
        assert len({client.assignment for client in alive}) == len(alive)
        assert len({client.generation.generation_id for client in alive if client.generation}) <= 1
        if alive:
            group = self.world.coordinator.group("g")
            assert group is not None
            assert set(group.members) == {client.member_id for client in alive}


steps = st.tuples(
    st.sampled_from(
        ["new"] * 3
        + ["step"] * 6
        + ["everybody"] * 6
        + ["flush"] * 4
        + ["wait"] * 4
        + ["reconnect"] * 2
        + ["vanish", "leave", "resubscribe", "crash", "fail"]
    ),
    st.integers(0, 120),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=80), st.sampled_from([0, 500, 3000]))
def test_a_generation_has_one_leader_and_one_assignment_and_everybody_is_served(
    history: list[tuple[str, int]], delay_ms: int
) -> None:
    async def live() -> None:
        await Life(GroupWorld(group_initial_rebalance_delay_ms=delay_ms)).run(history)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(live())
