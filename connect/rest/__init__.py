"""Kafka Connect's REST interface, served by a `Herder`. Needs the extra: pip install 'oncelog[connect]'."""
