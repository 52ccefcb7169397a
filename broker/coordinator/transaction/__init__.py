"""Coordinates transactions: transactional ids, their producers, markers and sessions.

The modules, from the lowest layer to the highest: `state`, `metadata` and `session` (the values of a transactional id
and their transitions), `decisions` (the rules for requests), `transaction_log` and `state_manager` (records, memory and
replay), `gateway` and `marker_writer` (markers), `maintenance` and `recovery` (work in the background and when the
broker starts), `core`, `registration`, `fencing` and `coordinator` (the methods that handlers call).
"""
