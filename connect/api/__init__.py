"""The interface for connector authors: connectors, tasks, records, offsets and transactions."""
