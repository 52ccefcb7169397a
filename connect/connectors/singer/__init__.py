"""SingerSource: the records of a Singer tap, which runs as a process; its state is the source offset.

`connector` has the settings, `process` runs the tap and ends it, `task` turns its messages into records.
"""
