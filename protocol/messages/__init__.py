"""Every message of the protocol: one file per API, request and response; see `protocol/schema.py` for the notation."""
