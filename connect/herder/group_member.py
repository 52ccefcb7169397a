"""`WorkerGroupMember`: a distributed worker's membership in its group, and the assignment of work by the leader.

The herder drives the membership: `wait` returns when a rebalance is due, and `join` takes part in it. `join` returns
the work that the herder must then stop and start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...client.cluster import Cluster
from ...client.config import ConsumerConfig
from ...client.consumer.membership import GroupMembership, Joined, JoinMember
from ...client.errors import KafkaError
from ..group.leader import Leader, needed_offset
from ..group.protocol import (
    PROTOCOL_TYPE,
    Assignment,
    ConnectProtocol,
    WorkerState,
    decode_assignment,
    encode_worker_state,
    protocol_named,
    running,
)
from ..settings.distributed import DistributedConfig
from ..stores.cluster_config import ClusterConfigState
from ..stores.ids import ConnectorTaskId

log = logging.getLogger(__name__)


class ConfigReader(Protocol):
    """The part of the `ConfigStore` that a member uses."""

    def snapshot(self) -> ClusterConfigState:
        """Return the state as of the last record that was read."""

    async def refresh(self, timeout_s: float) -> None:
        """Read the config topic to its end. Raises TimeoutError."""


class Rebalance(NamedTuple):
    """The outcome of one rebalance for this worker.

    `received` is the leader's assignment, and `running` the work that the worker runs once it has followed this
    assignment. With the eager protocol, the worker stops all other work. If `received.error` is set, the leader had not
    read the config topic far enough, and the worker joins again.
    """

    generation_id: int
    protocol: ConnectProtocol
    is_leader: bool
    received: Assignment
    running: Assignment


class WorkerGroupMember:
    """This worker's membership: `await start()`, then call `wait` and `join` in turn, and finally `close`.

    `url` is the address of the worker's REST interface. Members keep their work while they rejoin, unless
    `stops_before_joining` is true, as with the eager protocol. In that case, the herder must stop all work before
    `join`.
    """

    def __init__(self, config: DistributedConfig, url: str, configs: ConfigReader) -> None:
        self._config = config
        self._url = url
        self._configs = configs
        self._leader = Leader(config["scheduled.rebalance.max.delay.ms"])
        self._offered = ConnectProtocol[config["connect.protocol"].upper()].offered()
        self._protocol: ConnectProtocol | None = None
        self._running: Assignment | None = None
        self._completed_generation_id = -1
        self._rejoin_at: float | None = None
        self._gave_up = False
        """Whether the coordinator has been unreachable for so long that the worker must stop its work."""
        self._due = asyncio.Event()
        self._membership: GroupMembership
        self._cluster: Cluster

    @property
    def stops_before_joining(self) -> bool:
        """Whether the worker must stop all its work before it joins again.

        True with the eager protocol. Also true after the coordinator has been unreachable, because the group then
        reassigns the work.
        """
        return self._gave_up or self._protocol is ConnectProtocol.EAGER

    @property
    def member_id(self) -> str:
        """The member id from the coordinator; empty while the worker is not a member."""
        return self._membership.generation.member_id

    def owner_url(self, owned: str | ConnectorTaskId) -> str | None:
        """As the leader, return the REST address of the worker to which a connector or task is assigned, or None."""
        return self._leader.owner_url(owned)

    async def start(self, timeout_s: float) -> None:
        """Connect to the cluster, and make the first rebalance due. Raises KafkaTimeoutError."""
        client = ConsumerConfig.of(
            {
                **self._config.client(),
                "group.id": self._config["group.id"],
                "session.timeout.ms": self._config["session.timeout.ms"],
                "heartbeat.interval.ms": self._config["heartbeat.interval.ms"],
                "max.poll.interval.ms": self._config["rebalance.timeout.ms"],
            }
        )
        self._cluster = Cluster(client, allow_auto_topic_creation=False)
        try:
            await self._cluster.start(timeout_s)
        except BaseException:
            await self._cluster.close()
            raise
        self._membership = GroupMembership(self._cluster, client, self._due.set, PROTOCOL_TYPE)
        self._membership.polled(still=True)  # the worker is alive as long as its event loop sends heartbeats
        self._membership.request_rejoin("the worker starts")

    def request_rejoin(self, reason: str) -> None:
        """Make a rebalance due, for example because the configuration has changed or revoked work has stopped."""
        self._membership.request_rejoin(reason)

    @property
    def rejoin_due(self) -> bool:
        """Whether `wait` would return or raise immediately."""
        over = self._rejoin_at is not None and asyncio.get_running_loop().time() >= self._rejoin_at
        return over or self._membership.rejoin_reason is not None or self._membership.failure is not None

    async def wait(self) -> None:
        """Wait until a rebalance is due: the coordinator or the herder requests it, or a scheduled delay has passed.

        A rebalance is also due once the coordinator has been unreachable for heartbeat.interval.ms. Raises the
        KafkaError that permanently ended the membership.
        """
        membership = self._membership
        while membership.rejoin_reason is None:
            if membership.failure is not None:
                raise membership.failure.anew()
            self._due.clear()
            times = [time for time in (self._rejoin_at, self._give_up_at()) if time is not None]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(times, default=None)):
                    await self._due.wait()
            now = asyncio.get_running_loop().time()
            give_up_at = self._give_up_at()
            if give_up_at is not None and now >= give_up_at and membership.rejoin_reason is None:
                self._gave_up = True
                log.warning(
                    "the group's coordinator was unreachable for %d ms (heartbeat.interval.ms): stopping all "
                    "connectors and tasks, because the group may give them to other workers",
                    self._config["heartbeat.interval.ms"],
                )
                membership.request_rejoin("the coordinator was unreachable")
            if self._rejoin_at is not None and now >= self._rejoin_at:
                self._rejoin_at = None
                membership.request_rejoin("the scheduled delay of the rebalance is over")

    async def join(self) -> Rebalance:
        """Take part in rebalances until the worker has an assignment.

        Raises KafkaError for permanent failures, and DecodeError for an invalid assignment.
        """
        if self.stops_before_joining:
            self._running = None
        self._rejoin_at = None
        joined: Joined | None = None
        while joined is None:
            joined = await self._membership.join(self._metadata, self._assign)
        self._gave_up = False
        generation = joined.generation
        protocol = protocol_named(generation.protocol)
        received = decode_assignment(joined.assignment)
        self._protocol, self._running = protocol, running(self._running, received, protocol)
        self._completed_generation_id = generation.generation_id
        if received.error:
            self._membership.request_rejoin("the leader had not read the config topic to its end")
        elif received.delay_ms > 0:
            self._rejoin_at = asyncio.get_running_loop().time() + received.delay_ms / 1000
        return Rebalance(generation.generation_id, protocol, joined.is_leader, received, self._running)

    async def confirm(self) -> bool:
        """Return whether the coordinator still counts this worker as a member.

        True if the coordinator does not answer.
        """
        try:
            return await self._membership.confirm()
        except KafkaError as error:
            log.info("could not ask whether this worker is still in its group: %s", error)
            return True

    async def leave(self, reason: str, *, still_running: bool = False) -> None:
        """Leave the group immediately.

        If `still_running` is true, the worker reports its work when it rejoins. Otherwise, it reports none.
        """
        if not still_running:
            self._running = None
        await self._membership.leave(reason)

    def stopped_everything(self) -> None:
        """Record that the worker has stopped all its work, so that it reports none when it rejoins.

        The worker must not be in the group at this time.
        """
        self._running = None

    async def close(self) -> None:
        """End heartbeats and connections, without leaving the group."""
        await self._membership.close()
        await self._cluster.close()

    def _give_up_at(self) -> float | None:
        """Return the time at which a worker without its coordinator gives up its work, or None (KAFKA-9184)."""
        lost_at = self._membership.coordinator_lost_at
        return None if lost_at is None else lost_at + self._config["heartbeat.interval.ms"] / 1000

    def _metadata(self) -> list[tuple[str, bytes]]:
        state = WorkerState(self._url, self._configs.snapshot().offset, self._running)
        return [(protocol.value, encode_worker_state(state, protocol)) for protocol in self._offered]

    async def _assign(self, protocol: str, members: Sequence[JoinMember], skip: bool) -> dict[str, bytes]:
        metadata = {member.member_id: member.metadata for member in members}
        generation = self._membership.generation
        if self._configs.snapshot().offset < needed_offset(metadata):
            try:
                await self._configs.refresh(self._config["worker.sync.timeout.ms"] / 1000)
            except TimeoutError:
                log.warning("the leader could not read the config topic within worker.sync.timeout.ms")
        return self._leader.assign(
            generation.member_id,
            protocol_named(protocol),
            metadata,
            self._configs.snapshot(),
            completed_generation_id=self._completed_generation_id,
            generation_id=generation.generation_id,
            now_ms=int(asyncio.get_running_loop().time() * 1000),
        )
