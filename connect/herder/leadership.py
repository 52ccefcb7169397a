"""`Leadership`: tracks the leader of the group, and writes to the config topic while this worker is the leader.

The leader writes in transactions, with one transactional id for the whole group (KIP-618). After a new leader has
claimed this id, writes by the former leader fail. A leader that was fenced claims the id again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Final, Protocol

from ..errors import ConnectError, NotLeaderError
from ..group.protocol import ConnectProtocol
from ..group.session_keys import key_expires_ms, needs_new_key, new_session_key
from ..settings.distributed import DistributedConfig
from ..stores.config_store import ConfigStore
from .group_member import Rebalance

log = logging.getLogger(__name__)

RECLAIM_BACKOFF_S: Final = 0.25
"""The wait, in seconds, after a failed claim; Kafka Connect's value."""


class Identity(Protocol):
    """The part of the worker's membership that leadership uses."""

    @property
    def member_id(self) -> str:
        """The member id from the coordinator; empty while the worker is not a member."""


class Leadership:
    """This worker's view of the group's leadership after its last rebalance."""

    def __init__(self, config: DistributedConfig, member: Identity, configs: ConfigStore) -> None:
        self._config, self._member, self._configs = config, member, configs
        self._rebalance: Rebalance | None = None
        self._fenced = False

    @property
    def generation(self) -> int:
        """The generation of the last rebalance; 0 before the first rebalance."""
        return 0 if self._rebalance is None else self._rebalance.generation_id

    @property
    def protocol(self) -> str:
        """The name of the last rebalance's protocol or, before any rebalance, of the newest protocol offered."""
        if self._rebalance is None:
            return str(self._config["connect.protocol"]).lower()
        return self._rebalance.protocol.value

    @property
    def is_leader(self) -> bool:
        """Whether this worker leads the group, as of its last rebalance."""
        leads = self._rebalance is not None and self._rebalance.received.leader == self._member.member_id
        return leads and bool(self._member.member_id)

    @property
    def claim_lost(self) -> bool:
        """Whether a write or a claim has failed, so that the transactional id must be claimed before the next write."""
        return self._fenced

    @property
    def leader_url(self) -> str | None:
        """The REST address of the leader; None if unknown."""
        return None if self._rebalance is None else self._rebalance.received.leader_url or None

    @property
    def signs_requests(self) -> bool:
        """Whether internal requests must be signed (KIP-507)."""
        if self._rebalance is None:
            return str(self._config["connect.protocol"]).lower() == ConnectProtocol.SESSIONED.value
        return self._rebalance.protocol.signed

    def require(self, message: str) -> None:
        """Raise NotLeaderError with the message unless this worker is the leader."""
        if not self.is_leader:
            raise NotLeaderError(self.leader_url, message)

    async def rebalanced(self, rebalance: Rebalance) -> None:
        """Apply the outcome of a rebalance; as a new leader, claim the transactional id for the config topic."""
        before = self._rebalance
        if before is not None and before.protocol.signed and not rebalance.protocol.signed:
            log.warning(
                "requests between workers are no longer signed: a worker with an older connect.protocol has joined, so "
                "the group uses the protocol %r; set connect.protocol=sessioned on all workers",
                rebalance.protocol.value,
            )
        self._rebalance = rebalance
        if self.is_leader and (self._fenced or not _continues(before, rebalance)):
            await self._claim()

    async def write(self, writing: Awaitable[None]) -> None:
        """Await a write of the leader. If it fails, raise ConnectError.

        After a failure, `keep` claims the transactional id again.
        """
        try:
            await writing
        except Exception as error:
            log.warning("could not write to the config topic as the leader: %s", error)
            self._fenced = True
            raise ConnectError(
                "Failed to write to config topic; this may be due to a transient error and the request can be safely "
                "retried"
            ) from error

    async def keep(self, now_ms: int) -> bool:
        """As the leader, claim the transactional id again if the claim was lost, and write a session key if one is due.

        Return True if nothing is left to do. If the result is False, the caller waits RECLAIM_BACKOFF_S seconds and
        calls again.
        """
        if not self.is_leader:
            self._fenced = False
            return True
        if self._fenced:
            await self._claim()
        if self._fenced:
            return False
        if self.signs_requests and needs_new_key(self._configs.session_key, self._config, now_ms):
            log.info("writing a new session key")
            try:
                await self.write(self._configs.put_session_key(new_session_key(self._config, now_ms)))
            except ConnectError:
                return False
        return True

    def key_expires_ms(self) -> int | None:
        """Return when the next session key is due, in milliseconds since the epoch; None if this worker writes none."""
        key = self._configs.session_key
        return key_expires_ms(key, self._config) if key is not None and self.is_leader and self.signs_requests else None

    async def _claim(self) -> None:
        try:
            await self._configs.claim()
            self._fenced = False
        except Exception as error:
            log.warning("could not claim the right to write the config topic; trying again: %s", error)
            self._fenced = True


def _continues(before: Rebalance | None, after: Rebalance) -> bool:
    """Return whether the group had the same leader in both rebalances and no other rebalance between them."""
    return (
        before is not None
        and before.received.leader == after.received.leader
        and before.generation_id + 1 == after.generation_id
    )
