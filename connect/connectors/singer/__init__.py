"""SingerSource: produces the records of a Singer tap, which runs as a process; the tap's state is the source offset.

`connector` and `settings` define the connector, `process` runs and ends the tap, and `task` turns its messages into
records.
"""
