"""`TickLoop`: the main loop of a distributed herder, modelled on Kafka Connect's.

Each tick takes part in a rebalance that is due, and starts and stops work accordingly. The tick then renews the
leader's claim to the config topic, runs queued requests, carries out restarts, and applies the changes that were read
from the config topic. Finally, it waits for the next event. Only this loop starts and stops this worker's work, one
step at a time.

A worker that cannot read the config topic leaves the group and tries again. It keeps its work during the first
attempts. If they all fail, the worker stops its work, because the group reassigns the work.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from ...client.errors import RetriableError
from ..group.protocol import ConnectProtocol
from ..settings.distributed import DistributedConfig
from ..stopping import StoppedError, unless_stopped
from ..stores.config_store import ConfigStore
from .config_changes import ConfigChanges
from .group_member import Rebalance
from .leadership import RECLAIM_BACKOFF_S, Leadership
from .local_work import LocalWork
from .rebalance_metrics import RebalanceMetrics
from .requests import Requests

log = logging.getLogger(__name__)

UNSYNCED_ATTEMPTS: Final = 5
"""The number of attempts to read the config topic before a worker stops its work, as in Kafka Connect."""


class Member(Protocol):
    """The interface of the worker's group membership; `WorkerGroupMember` implements it."""

    @property
    def member_id(self) -> str: ...
    @property
    def stops_before_joining(self) -> bool: ...
    @property
    def rejoin_due(self) -> bool: ...
    def request_rejoin(self, reason: str) -> None: ...
    async def wait(self) -> None: ...
    async def join(self) -> Rebalance: ...
    async def leave(self, reason: str, *, still_running: bool = False) -> None: ...
    def stopped_everything(self) -> None: ...


class Follows(Protocol):
    """The interface of `Housekeeping`, which updates the status topic."""

    async def before_rebalance(self) -> None:
        """Write the reported statuses, because after the rebalance another worker may report new ones."""

    async def rebalanced(self) -> None:
        """Delete the statuses of connectors and tasks that no longer exist."""

    async def restart_requested(self) -> None:
        """Carry out the restarts that users have requested."""


class TickLoop:
    """The loop of a distributed herder. It runs from `run` until `stop`; `wake` starts the next tick immediately."""

    def __init__(self, config: DistributedConfig, configs: ConfigStore, wall_ms: Callable[[], int]) -> None:
        """Set up the loop; `wall_ms` returns milliseconds since the epoch."""
        self._config, self._configs, self._wall_ms = config, configs, wall_ms
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._rebalance: Rebalance | None = None
        self._following = False
        """Whether the worker has not yet followed the outcome of the last rebalance."""
        self._member_id = ""
        """The worker's member id in the last rebalance. It changes after the group has removed the worker."""
        self.metrics = RebalanceMetrics(time.monotonic)
        self._unsynced = 0
        """The number of consecutive failed attempts to read the config topic."""

    def attach(
        self,
        member: Member,
        leadership: Leadership,
        requests: Requests,
        changes: ConfigChanges,
        work: LocalWork,
        follows: Follows,
    ) -> None:
        """Set the parts that the loop drives. Called before `run`."""
        self._member, self._leadership, self._requests = member, leadership, requests
        self._changes, self._work, self._follows = changes, work, follows

    def wake(self) -> None:
        """Start the next tick now, or right after the current tick."""
        self._woken.set()

    def stop(self) -> None:
        """End the loop after its current step, without waiting for the group."""
        self._stopping.set()

    async def run(self, first_tick_done: Callable[[], None]) -> None:
        """Tick until `stop`. Raises the error that permanently ended the membership."""
        # Ignore changes up to now, because no connector or task is running yet.
        self._changes.take(self._configs.snapshot().connector_configs)
        try:
            while not self._stopping.is_set():
                if await self._tick():
                    first_tick_done()
                    await self._wait()
        except StoppedError:
            pass

    async def _tick(self) -> bool:
        """Do all work that is due. Return False if the next tick must follow at once, to rebalance or to try again."""
        self._woken.clear()
        if self._unsynced and not await self._catch_up():
            return False
        if self._member.rejoin_due:
            await self._join()
        if self._following and not await self._follow():
            return False
        if not await self._leadership.keep(self._wall_ms()):
            await self._pause(RECLAIM_BACKOFF_S)
            return False
        await self._requests.run_waiting()
        await self._follows.restart_requested()
        return not await self._apply_changes() and not self._leadership.claim_lost

    async def _join(self) -> None:
        if self._member.stops_before_joining:
            await self._work.stop(self._work.started)
        await self._follows.before_rebalance()
        rebalance = await unless_stopped(self._member.join(), self._stopping)
        log.info(
            "generation %d, protocol %s, leader %s, delay %d ms: to run %s, to stop %s",
            rebalance.generation_id,
            rebalance.protocol.value,
            rebalance.received.leader_url,
            rebalance.received.delay_ms,
            rebalance.running.assigned.work,
            rebalance.received.revoked.work,
        )
        self._rebalance, self._following = rebalance, True
        self.metrics.began()
        stopping = self._work.started - rebalance.running.assigned.work
        dropped = self._member_id not in ("", self._member.member_id)
        if dropped:
            # Other workers may have run this work in the meantime. The tasks here are fenced or outdated, and the
            # status topic may have the last states that the other workers reported.
            stopping = self._work.started
        self._member_id = self._member.member_id
        await self._work.stop(stopping)
        await self._leadership.rebalanced(rebalance)
        await self._follows.rebalanced()

    async def _follow(self) -> bool:
        """Start the assigned work; return False if another rebalance must come first."""
        assert self._rebalance is not None
        received = self._rebalance.received
        if (received.error or self._configs.offset < received.config_offset) and not await self._catch_up():
            return False
        if received.error:
            return False  # the member rejoins
        if self._configs.offset != received.config_offset:
            self._member.request_rejoin(
                f"the config topic has grown from offset {received.config_offset} to {self._configs.offset}"
            )
            return False
        await self._work.follow(self._rebalance.running.assigned.work)
        self._following = False
        self.metrics.completed()
        if received.revoked.work:
            self._member.request_rejoin("the revoked work has stopped")
            return False
        return True

    async def _apply_changes(self) -> bool:
        """Apply the changes that were read from the config topic; return whether the group must rebalance."""
        changes = self._changes.take(self._configs.snapshot().connector_configs)
        eager = self._rebalance is not None and self._rebalance.protocol is ConnectProtocol.EAGER
        if not (changes.rebalance and eager):  # with the eager protocol, everything restarts anyway
            await self._work.follow_settings(changes.connectors)
            for connector in sorted(changes.targets):
                self._work.set_target(connector)
            await self._work.stop_tasks_of(changes.tasks)
        if changes.rebalance:
            self._member.request_rejoin("connectors or tasks were added or removed")
        return changes.rebalance

    async def _catch_up(self) -> bool:
        """Read the config topic to its end; return False if this fails or takes too long."""
        try:
            await unless_stopped(self._configs.refresh(self._config["worker.sync.timeout.ms"] / 1000), self._stopping)
        except (TimeoutError, RetriableError) as error:
            await self._lag_behind(str(error) or "not within worker.sync.timeout.ms")
            return False
        self._unsynced = 0
        return True

    async def _lag_behind(self, reason: str) -> None:
        if self._unsynced == 0:
            await self._member.leave("taking too long to read the log", still_running=True)
            self._member.request_rejoin("the worker had not read the config topic to its end")
        self._unsynced += 1
        log.warning("the config topic was not read to its end, attempt %d: %s", self._unsynced, reason)
        if self._unsynced > UNSYNCED_ATTEMPTS:
            if self._work.started:
                log.warning("stopping all work, because the group assigns it to other workers")
                await self._work.stop(self._work.started)
                self._member.stopped_everything()
            await self._pause(self._config["worker.unsync.backoff.ms"] / 1000)
            return
        left = UNSYNCED_ATTEMPTS + 1 - self._unsynced
        await self._pause(self._config["scheduled.rebalance.max.delay.ms"] / 1000 / 10 / left)

    async def _wait(self) -> None:
        """Wait until a rebalance is due, `wake` or `stop` is called, or the session key expires."""
        expires_ms = self._leadership.key_expires_ms()
        timeout_s = None if expires_ms is None else max(0, expires_ms - self._wall_ms()) / 1000
        due = asyncio.create_task(self._member.wait())
        waiting = {due, asyncio.create_task(self._woken.wait()), asyncio.create_task(self._stopping.wait())}
        try:
            await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if due.done():
                due.result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _pause(self, seconds: float) -> None:
        await unless_stopped(asyncio.sleep(seconds), self._stopping)
