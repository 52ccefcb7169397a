"""Limit what clients use: bytes written and read, time, changes of partitions, and new connections.

The rules are those of KIP-13, KIP-124, KIP-219, KIP-546, KIP-599 and KIP-612. `entity.py` names the clients for which
a quota is set, `rates.py` measures, and `client_quotas.py` decides how long a client has to wait.
"""
