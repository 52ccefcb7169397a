"""Access control with Kafka's semantics: rules (`acl`, `acl_index`), decisions (`authorizer`), clients (`access`).

This package is pure: it uses no sockets, files, clocks or tasks, and knows no API. `broker/requirements.py` says which
API requires which operation, and `broker/authorization.py` enforces it.
"""
