"""Limit what clients use: bytes written and read, time, created and deleted partitions, and new connections.

The rules are those of KIP-13, KIP-124, KIP-219, KIP-546, KIP-599 and KIP-612. `entity.py` names the clients for which a
quota is set, `rates.py` measures what they use, and `client_quotas.py` decides how long a client has to wait.
"""
