"""The group of distributed workers, as pure code: the Connect protocol's bytes, and who runs which work.

`protocol.py` owns the bytes of JoinGroup and SyncGroup, `cooperative.py` and `eager.py` the assignment, `leader.py`
what the leader answers to all members. Nothing here knows sockets, clocks or stores.
"""
