"""Coordinates transactions: transactional ids, their producers, markers and sessions, and group-aware initialisation.

The modules, from the lowest layer to the highest: `state`, `metadata` and `session` (the values of a transactional id
and their transitions), `decisions` (the rules for requests), `transaction_log` and `state_manager` (records, memory and
replay), `gateway` and `marker_writer` (markers), `upkeep` and `recovery` (work in the background and when the broker
starts), `core`, `registration`, `fencing` and `coordinator` (the methods that handlers call). The modules `group_*`
implement group-aware initialisation and claims; the highest of them is `group_initialisation`.
"""
