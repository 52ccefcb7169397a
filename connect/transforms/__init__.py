"""Single-message transforms, which change one record at a time before it is produced, and their predicates.

A class with two variants, `Key` and `Value`, changes that part of the record. Settings and names are Kafka Connect's.
"""
