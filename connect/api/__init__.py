"""What the author of a connector subclasses and is given: connector, task, records, offsets, transactions."""
