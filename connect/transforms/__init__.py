"""Single-message transforms: changes of one record at a time, on its way to the topic; and predicates for them.

A class with two variants, `Key` and `Value`, changes that part of the record. Settings and names are Kafka Connect's.
"""
