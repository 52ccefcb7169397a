"""What a worker remembers: configs, offsets and status, in the record formats of Kafka Connect's internal topics.

`*_records.py` turn records into values and back, without any input or output. `cluster_config.py` follows the config
topic. `*_store.py` put a `TopicLog` under them: `kafka_log.py` in a cluster, `memory_log.py` and `file_log.py` for a
worker alone.
"""
