"""Access control with Kafka's semantics: rules (`acl`, `acl_index`), decisions (`authorizer`), clients (`access`).

This package is pure: it uses no sockets, files, clocks or tasks, and knows no API. `broker/api/requirements.py` says
which API requires which operation, and `broker/api/authorization.py` enforces it.
"""
