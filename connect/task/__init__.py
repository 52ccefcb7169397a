"""Runs one source task: poll → transform → convert → produce, with its offsets.

`calls` runs the methods of connectors and tasks, in the event loop or in a thread. `pipeline` turns a record into
bytes. `delivery` defines how the runner delivers records and offsets to topics. `at_least_once` and `exactly_once`
implement it. `runner` is the loop.
"""
