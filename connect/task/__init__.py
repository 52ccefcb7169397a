"""Runs one source task: poll → transform → convert → produce, together with the records' offsets.

`runner` is the loop. `pipeline` turns a record into bytes. `delivery` defines the interface through which the runner
delivers records and offsets to topics. `at_least_once` and `exactly_once` implement this interface, and `boundaries`
decides where transactions end.
"""
