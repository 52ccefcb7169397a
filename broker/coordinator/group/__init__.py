"""Consumer groups (classic protocol) and their committed offsets.

From the bottom: `state` (which state may follow which), `member`, `classic_group` (who is in, what they voted for),
`timer`, `rebalance` (how a generation comes about), `membership` (what a member may ask), `offsets` (what is committed
and what is pending), `offset_commits` and `offset_queries` (what may be committed, told, deleted, expired),
`group_log` (records and durability), `coordinator` (what handlers call).
"""
