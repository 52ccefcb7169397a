"""Define every message of the protocol: one file per API, with its request and response, in the notation of
`protocol/schema.py`.
"""
