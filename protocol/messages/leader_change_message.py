"""Define LeaderChangeMessage."""

from __future__ import annotations

from ..schema import Message, Struct, array, data, int16, int32, struct, uuid


@struct
class Voter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: bytes = uuid("1+")


@data(versions="0-1", flexible="0+")
class LeaderChangeMessage(Message):
    """The value of the control record that a new KRaft leader writes. oncelog skips it."""

    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: list[Voter] = array(Voter, "0+")
    granting_voters: list[Voter] = array(Voter, "0+")
