"""Prove and name identities: keys, certificates, the options of TLS, SCRAM, and principals, for broker and clients.

It has no sockets and no settings tables: broker and client name the settings in their errors.
"""
