"""Tables of the settings of workers and of connectors, with Kafka Connect's names and defaults."""
