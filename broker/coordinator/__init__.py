"""Coordinates consumer groups (`group/`) and transactions (`transaction/`), whose state is kept in internal topics.

`state_log` appends and replays the state, `last_records` finds the records that a replay needs, and `claims` defines
the interfaces between the two coordinators.
"""
