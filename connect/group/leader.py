"""`Leader`: computes the group leader's assignments for all members, from their metadata and the config topic."""

from __future__ import annotations

from collections.abc import Mapping

from ..stores.cluster_config import ClusterConfigState
from ..stores.ids import ConnectorTaskId
from .cooperative import AssignorState, assign_cooperatively
from .eager import assign_eagerly
from .protocol import (
    CONFIG_MISMATCH,
    Assignment,
    Change,
    ConnectProtocol,
    decode_worker_state,
    encode_assignment,
)
from .work import Work, configured


def needed_offset(members: Mapping[str, bytes]) -> int:
    """Return the config topic offset up to which the leader must have read. Raises DecodeError."""
    return max(decode_worker_state(metadata).config_offset for metadata in members.values())


class Leader:
    """Assigns connectors and tasks, round by round. A worker uses its `Leader` while the worker leads the group."""

    def __init__(self, max_delay_ms: int) -> None:
        """Set up the assignor; `max_delay_ms` is scheduled.rebalance.max.delay.ms."""
        self._max_delay_ms = max_delay_ms
        self._state = AssignorState()
        self._urls: dict[str, str] = {}
        self._work: dict[str, Work] = {}

    def owner_url(self, owned: str | ConnectorTaskId) -> str | None:
        """Return the REST address of the worker that owns a connector or task after the last round, or None."""
        for member, work in self._work.items():
            if owned in (work.tasks if isinstance(owned, ConnectorTaskId) else work.connectors):
                return self._urls[member]
        return None

    def assign(
        self,
        leader_id: str,
        protocol: ConnectProtocol,
        members: Mapping[str, bytes],
        config: ClusterConfigState,
        *,
        completed_generation_id: int,
        generation_id: int,
        now_ms: int,
    ) -> dict[str, bytes]:
        """Return the encoded assignment of each member. Raises DecodeError for invalid metadata.

        `members` contains the metadata of each member by its id, including the leader's. If `config` has not reached
        the offset of a member, all members receive CONFIG_MISMATCH, and no work is assigned or revoked.
        """
        states = {member: decode_worker_state(metadata) for member, metadata in members.items()}
        url, offset = states[leader_id].url, needed_offset(members)
        if config.offset < offset:
            mismatch = Assignment(leader_id, url, offset, error=CONFIG_MISMATCH)
            return dict.fromkeys(members, encode_assignment(mismatch, protocol))
        self._urls = {member: state.url for member, state in states.items()}
        if not protocol.cooperative:
            work = self._work = assign_eagerly(configured(config), members)
            assignments = {
                member: Assignment(leader_id, url, config.offset, Change.of(work[member])) for member in members
            }
        else:
            running = {member: state.running for member, state in states.items()}
            assigned, revoked, delay_ms, self._state = assign_cooperatively(
                configured(config),
                running,
                self._state,
                completed_generation_id=completed_generation_id,
                generation_id=generation_id,
                now_ms=now_ms,
                max_delay_ms=self._max_delay_ms,
            )
            self._work = {member: (running[member] - revoked[member]) | assigned[member] for member in members}
            assignments = {
                member: Assignment(
                    leader_id, url, config.offset, Change.of(assigned[member]), Change.of(revoked[member]), delay_ms
                )
                for member in members
            }
        return {member: encode_assignment(assignment, protocol) for member, assignment in assignments.items()}
