"""Decides which suffixes of its transactional ids a pool may use: `GroupLeases` shares the suffixes with other
processes, and `OwnSuffixes` takes all of them.

A lease is a group membership, which works with any Kafka broker: processes with the same prefix are members of one
group, whose leader divides the suffixes (`division.py`). The share of a dead process becomes free when the session of
the process times out.

Safety does not depend on the lease. A process that is wrongly considered dead may continue for a moment with a suffix
that has a new holder. Before its first transaction the new holder calls init_transactions, which fences the old process
and aborts its open transaction; earlier commits stay committed. The lease only keeps live processes from fencing each
other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster import Cluster
from ..config import ConsumerConfig
from ..consumer.membership import GroupMembership, JoinMember, MemberState
from ..errors import FatalError
from ..kept_task import KeptTask
from .division import PROTOCOL, PROTOCOL_TYPE, Holding, decode_share, divide, encode_share

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The callbacks of a pool, which its leases call. They are plain functions that return at once."""

    in_use: Callable[[], Collection[int]]
    """Returns the suffixes whose producer is in use."""
    gained: Callable[[], None]
    """Called when this process has gained suffixes."""
    withdrawn: Callable[[Collection[int]], None]
    """Called with suffixes that other processes are to get. The pool begins no new transaction with them, and calls
    `release` for each suffix as soon as the suffix is not in use.
    """
    lost: Callable[[Collection[int]], None]
    """Called with suffixes that other processes may already have. The pool must not use them any more."""


class Leases(Protocol):
    """Decides which suffixes of its transactional ids a pool may use."""

    @property
    def held(self) -> Collection[int]:
        """The suffixes that may be used for a new transaction now."""

    async def start(self, timeout_s: float) -> None:
        """Begin to acquire suffixes. Does not wait for them."""

    def release(self, suffix: int) -> None:
        """Report that a withdrawn suffix is no longer in use."""

    async def close(self, timeout_s: float | None) -> None:
        """Give all suffixes back. No suffix may be in use."""


class OwnSuffixes:
    """Lets a pool use all suffixes of its prefix, which no other process may use."""

    def __init__(self, size: int, holder: LeaseHolder) -> None:
        self.held = range(size)
        self._holder = holder

    async def start(self, timeout_s: float) -> None:
        self._holder.gained()

    def release(self, suffix: int) -> None:
        raise AssertionError("nothing is ever withdrawn")

    async def close(self, timeout_s: float | None) -> None:
        pass


class GroupLeases:
    """Shares the suffixes among all processes with the same prefix, which are the members of a consumer group."""

    def __init__(self, config: ConsumerConfig, size: int, holder: LeaseHolder) -> None:
        self._config = config
        self._size = size
        self._holder = holder
        self._held: set[int] = set()
        self._leaving: set[int] = set()
        """Suffixes that were withdrawn but are not released yet. To other members, this process still holds them."""
        self._awake = asyncio.Event()
        self._cluster = Cluster(config)
        self._membership: GroupMembership | None = None
        self._task: KeptTask | None = None
        self.failure: Exception | None = None
        """The reason why no new suffixes arrive; None if the last join succeeded."""

    @property
    def held(self) -> Collection[int]:
        return self._held

    async def start(self, timeout_s: float) -> None:
        """Connect to the cluster. Raises KafkaTimeoutError. The suffixes arrive later."""
        try:
            await self._cluster.start(timeout_s)
        except BaseException:
            await self._cluster.close()
            raise
        membership = GroupMembership(self._cluster, self._config, self._awake.set, PROTOCOL_TYPE)
        membership.polled(still=True)  # marks a poll that never ends, because leases need no polls
        membership.request_rejoin("the pool begins")
        self._membership = membership
        self._task = KeptTask(lambda: self._stay(membership), f"leases of {self._config.group_id}")

    def release(self, suffix: int) -> None:
        if suffix in self._leaving:
            self._leaving.discard(suffix)
            assert self._membership is not None
            self._membership.request_rejoin("suffixes were given up and can go to other processes")

    async def close(self, timeout_s: float | None) -> None:
        self._held.clear()
        self._leaving.clear()
        try:
            if self._task is not None:
                await asyncio.gather(self._task.cancel(), return_exceptions=True)
            if self._membership is not None:
                await self._membership.leave("the pool is closed", timeout_s)
        finally:
            if self._membership is not None:
                await self._membership.close()
            await self._cluster.close()

    # -- inside

    async def _stay(self, membership: GroupMembership) -> None:
        try:
            await self._join_again_and_again(membership)
        except Exception as error:  # after a bug, tasks must not wait for suffixes that never come
            log.exception("the leases of group %s failed", self._config.group_id)
            failure = FatalError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the leases failed: {error!r}")
            failure.__cause__ = error
            self._fail(failure)

    async def _join_again_and_again(self, membership: GroupMembership) -> None:
        attempt = 0
        while True:
            self._awake.clear()
            if membership.generation.generation_id < 0:
                self._lose(str(membership.failure or "the group no longer has this member"))
            if membership.failure is not None:
                return self._fail(membership.failure)
            if membership.rejoin_reason is None and membership.state is MemberState.STABLE:
                await self._awake.wait()
                continue
            try:
                joined = await membership.join(self._protocols, self._assign)
            except (KafkaError, ValueError) as error:  # ValueError: a member of another kind is in the group
                log.warning("group %s: could not join; trying again: %s", self._config.group_id, error)
                self.failure = error
                await asyncio.sleep(self._cluster.retry_backoff(attempt))
                attempt += 1
                membership.request_rejoin("the last attempt failed")
                continue
            if joined is not None:
                attempt, self.failure = 0, None
                self._take(decode_share(joined.assignment))

    def _take(self, share: set[int]) -> None:
        gone = self._held - share
        self._held = share
        self._leaving = (self._leaving | gone) - share
        log.info(
            "group %s: the pool has the transactional ids with the numbers %s", self._config.group_id, sorted(share)
        )
        if gone:
            self._holder.withdrawn(gone)
        self._holder.gained()

    def _lose(self, why: str) -> None:
        """Give up all suffixes, because others may use them now; `why` is for the log."""
        lost = self._held | self._leaving
        self._held, self._leaving = set(), set()
        if lost:
            log.warning(
                "group %s: the pool has lost the transactional ids with the numbers %s (%s). Other processes may use"
                " them now, so the pool closes its producers with these ids",
                self._config.group_id,
                sorted(lost),
                why,
            )
            self._holder.lost(lost)

    def _fail(self, error: KafkaError) -> None:
        log.error("group %s: the pool gets no more transactional ids: %s", self._config.group_id, error)
        self.failure = error
        self._lose(str(error))

    def _protocols(self) -> list[tuple[str, bytes]]:
        assert self._membership is not None
        held = self._held | self._leaving
        busy = held & set(self._holder.in_use())
        holding = Holding(
            self._size,
            (*sorted(busy), *sorted(held - busy)),
            self._membership.generation.generation_id if held else -1,
        )
        return [(PROTOCOL, holding.encode())]

    async def _assign(self, protocol: str, members: Sequence[JoinMember], stands: bool) -> dict[str, bytes]:
        if stands:
            return {}
        holdings = {member.member_id: Holding.decode(member.metadata) for member in members}
        sizes = {holding.size for holding in holdings.values()}
        if len(sizes) > 1:
            log.warning(
                "group %s: its pools have different sizes %s. The largest size applies: give all of them the same size",
                self._config.group_id,
                sorted(sizes),
            )
        return {member: encode_share(suffixes) for member, suffixes in divide(holdings).items()}
