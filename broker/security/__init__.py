"""Decide who may use the broker: TLS for its listeners. Each module names the settings of Kafka that it implements."""
