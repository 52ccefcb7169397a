"""Kafka Connect's REST interface, on a `Herder`. Needs the extra: pip install 'oncelog[connect]'."""
