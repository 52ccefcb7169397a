"""What can be set: for a worker, and for each connector. Names and defaults are Kafka Connect's."""
