"""Coordinates consumer groups (`group/`) and transactions (`transaction/`), whose state is kept in internal topics.

A claim is the exclusive right of a producer to commit a group's offsets on a partition. `claims/` stores the claims,
and `claim` defines the interfaces through which the two coordinators use them. `state_log` appends and replays the
state, and `last_records` finds the records that a replay needs.
"""
