"""Stores a worker's configs, offsets and statuses in the record formats of Kafka Connect's internal topics.

The `*_records.py` modules turn records into values and back, without input or output. `cluster_config.py` derives the
state of the cluster from the records of the config topic. The `*_store.py` modules read and write through a `TopicLog`:
`kafka_log.py` implements it with a Kafka topic; `memory_log.py` and `file_log.py` serve a standalone worker.
"""
