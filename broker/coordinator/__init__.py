"""Coordinates consumer groups (`group/`) and transactions (`transaction/`), whose state is kept in internal topics.

`claims/` keeps the claims of producers on the partitions that groups consume. `claim` defines claims, and the
interfaces between the coordinators. `state_log` appends and replays the state, and `last_records` finds the records
that a replay needs.
"""
