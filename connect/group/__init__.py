"""The group of distributed workers, as pure code: the Connect protocol's bytes and the assignment of work.

`protocol.py` encodes and decodes the metadata of JoinGroup and the assignments of SyncGroup, `cooperative.py` and
`eager.py` compute assignments, and `leader.py` builds the leader's assignments for all members. These modules use no
sockets, clocks or stores.
"""
