"""Single-message transforms, which change one record at a time before it is produced, and their predicates.

A transform that has the two variants `Key` and `Value` changes either the key or the value of the record. Settings and
names are Kafka Connect's.
"""
