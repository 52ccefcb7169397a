"""Coordinates consumer groups (classic protocol) and stores their committed offsets.

The modules, from the lowest layer to the highest: `state` (states and transitions), `member`, `classic_group` (members,
votes, generation), `timer`, `rebalance` (from join to assignment), `membership` (requests of members), `offsets`
(committed and pending offsets), `offset_rules` (which offsets may be committed, deleted, expired), `group_log` (records
and durability), `cleanup` (removal and expiry), `coordinator` (the methods that handlers call).
"""
