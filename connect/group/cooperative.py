"""Computes the incremental cooperative assignment (KIP-415): workers keep running work that does not move.

Invariants:
- Work moves from one worker to another in two rounds: it is revoked in the first and assigned in the second.
- The work of a departed worker is called lost. It stays unassigned until the worker returns, or until
  scheduled.rebalance.max.delay.ms has passed. No work is revoked for balance in the meantime.
- If two rounds in a row revoke work for balance, the second revocation is delayed. The delay grows with each such
  round, so that workers that join and leave one after another do not cause all work to move each time (KAFKA-12495).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

from ..stores.ids import ConnectorTaskId
from .work import Work, union

_BACKOFF_BASE_MS: Final = 40
"""Revocations for balance are delayed by 40 ms, then by 40² ms and so on, up to the maximum delay."""
_BACKOFF_MAX_EXPONENT: Final = 8

T = TypeVar("T", str, ConnectorTaskId)


@dataclass(frozen=True, slots=True)
class AssignorState:
    """The leader's state between two rounds. Times are in milliseconds of the leader's clock."""

    generation_id: int = -1
    members: frozenset[str] = frozenset()
    assigned: Work = Work()
    """All assigned work, including lost work."""
    lost_until_ms: int | None = None
    """The time at which lost work is reassigned; None if no lost work waits."""
    revoked_for_balance: bool = False
    successive_revocations: int = 0
    balance_after_ms: int | None = None
    """The time from which work may be revoked for balance again; None for no delay."""


class Round(NamedTuple):
    """The result of one round.

    `assigned` is the work that each member starts, and `revoked` the work that it stops. `delay_ms` is the time after
    which all members rejoin; 0 means no rejoin.
    """

    assigned: dict[str, Work]
    revoked: dict[str, Work]
    delay_ms: int
    state: AssignorState


def assign_cooperatively(
    configured: Work,
    running: Mapping[str, Work],
    state: AssignorState,
    *,
    completed_generation_id: int,
    generation_id: int,
    now_ms: int,
    max_delay_ms: int,
) -> Round:
    """Compute one round. `running` contains the work that each member runs. There must be at least one member.

    `completed_generation_id` is the last generation that all members joined and synced. If it differs from the
    generation of `state`, another leader may have assigned work since then, and `state` is ignored.
    """
    if state.generation_id != completed_generation_id:
        state = AssignorState()
    active = union(running.values())
    lost = (state.assigned & configured) - active
    revoked = {member: work & (_duplicated(running) | (active - configured)) for member, work in running.items()}
    kept = {member: work - revoked[member] for member, work in running.items()}

    lost_until_ms = _lost_until(lost, running, state, now_ms, max_delay_ms)
    waiting = lost if lost_until_ms is not None else Work()
    state = _rebalanced(state, kept, configured, revoked, bool(waiting), now_ms, max_delay_ms)
    kept = {member: work - revoked[member] for member, work in kept.items()}

    fresh = configured - active - waiting
    assigned = _spread(fresh, kept)
    times = [time for time in (lost_until_ms, state.balance_after_ms) if time is not None]
    after = replace(
        state,
        generation_id=generation_id,
        members=frozenset(running),
        assigned=union(kept.values()) | fresh | waiting,
        lost_until_ms=lost_until_ms,
    )
    return Round(assigned, revoked, min(times) - now_ms if times else 0, after)


def _duplicated(running: Mapping[str, Work]) -> Work:
    """Return the work that several members run; all of them must stop it before one member starts it again."""
    connectors = Counter(connector for work in running.values() for connector in work.connectors)
    tasks = Counter(task for work in running.values() for task in work.tasks)
    return Work.of(
        (connector for connector, members in connectors.items() if members > 1),
        (task for task, members in tasks.items() if members > 1),
    )


def _lost_until(
    lost: Work, members: Collection[str], state: AssignorState, now_ms: int, max_delay_ms: int
) -> int | None:
    """Return the time at which lost work is reassigned; None to reassign it now, or if no work is lost."""
    if not lost or max_delay_ms == 0:
        return None
    if state.lost_until_ms is not None:
        return state.lost_until_ms if now_ms < state.lost_until_ms else None
    if state.members <= set(members):  # no member has left: an assignment did not arrive
        return None
    return now_ms + max_delay_ms


def _rebalanced(
    state: AssignorState,
    kept: Mapping[str, Work],
    configured: Work,
    revoked: dict[str, Work],
    waiting: bool,
    now_ms: int,
    max_delay_ms: int,
) -> AssignorState:
    """Add to `revoked` the work that moves for balance, unless the move must wait. Return the state after the round."""
    if waiting:
        return replace(state, revoked_for_balance=False, balance_after_ms=None)
    surplus = _surplus(kept, configured)
    if not surplus:
        return replace(state, revoked_for_balance=False, successive_revocations=0, balance_after_ms=None)
    after_ms = state.balance_after_ms
    if after_ms is not None and now_ms < after_ms:
        return state
    if state.revoked_for_balance and after_ms is None and max_delay_ms > 0:
        successive = state.successive_revocations + 1
        wait_ms = min(_BACKOFF_BASE_MS ** min(successive, _BACKOFF_MAX_EXPONENT), max_delay_ms)
        return replace(state, successive_revocations=successive, balance_after_ms=now_ms + wait_ms)
    for member, work in surplus.items():
        revoked[member] |= work
    return replace(state, revoked_for_balance=True, balance_after_ms=None)


def _surplus(kept: Mapping[str, Work], configured: Work) -> dict[str, Work]:
    """Return the work that members run beyond their share of the configured work."""
    connectors = _beyond_share({member: work.connectors for member, work in kept.items()}, len(configured.connectors))
    tasks = _beyond_share({member: work.tasks for member, work in kept.items()}, len(configured.tasks))
    surplus = {member: Work.of(connectors[member], tasks[member]) for member in kept}
    return {member: work for member, work in surplus.items() if work}


def _beyond_share(kept: Mapping[str, Collection[T]], total: int) -> dict[str, list[T]]:
    """Return each member's items beyond an equal share. The members with the most items get the remainder."""
    share, remainder = divmod(total, len(kept))
    beyond: dict[str, list[T]] = {}
    for place, member in enumerate(sorted(kept, key=lambda member: (-len(kept[member]), member))):
        beyond[member] = sorted(kept[member])[share + (place < remainder) :]
    return beyond


def _spread(work: Work, kept: Mapping[str, Work]) -> dict[str, Work]:
    """Return the work that each member starts: each item is given to the member with the fewest items so far."""
    connectors = _to_least_loaded(
        sorted(work.connectors), {member: len(each.connectors) for member, each in kept.items()}
    )
    tasks = _to_least_loaded(sorted(work.tasks), {member: len(each.tasks) for member, each in kept.items()})
    return {member: Work.of(connectors[member], tasks[member]) for member in kept}


def _to_least_loaded(items: Iterable[T], loads: dict[str, int]) -> dict[str, list[T]]:
    taken: dict[str, list[T]] = {member: [] for member in loads}
    for item in items:
        member = min(loads, key=lambda member: (loads[member], member))
        loads[member] += 1
        taken[member].append(item)
    return taken
