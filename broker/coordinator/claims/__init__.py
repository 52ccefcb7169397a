"""Group-aware initialisation: producers claim partitions of consumer groups, and fence the earlier owners.

`initialisation` executes InitProducerId with a group, a generation and partitions. `keeper` stores the claims, which
the group coordinator enforces when offsets are committed. The module `coordinator/claim.py` defines what a claim is.
"""
