"""Runs one source task: poll → transform → convert → produce, with its offsets.

`calls` runs what a connector's author wrote, in the loop or in a thread. `pipeline` turns a record into bytes.
`delivery` says what the runner needs of the way to the topic; `at_least_once` and `exactly_once` are the two ways.
`runner` is the loop.
"""
