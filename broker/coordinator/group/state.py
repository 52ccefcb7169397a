"""Defines the states of a group and the valid transitions between them.

This file contains only the table; `classic_group` and `rebalance` implement the transitions.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """The state of a group; the value is the name that DescribeGroups and ListGroups return.

    * EMPTY: the group has no members, but may still have offsets.
    * PREPARING_REBALANCE: members must join.
    * COMPLETING_REBALANCE: the members of the new generation are known, but their assignment is not.
    * STABLE: members and assignment are known.
    * DEAD: the group was deleted. Code that still has the object must look the group up again.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}


def may_follow(state: GroupState, previous: GroupState) -> bool:
    """Whether a group may go from `previous` to `state`."""
    return previous in VALID_PREVIOUS_STATES[state]
