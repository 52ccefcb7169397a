"""Identities and their proofs, for broker, clients and workers: principals, keys, certificates, TLS options, passwords.

This package opens no sockets and reads no settings. An error says what is wrong with a value, and its caller puts the
name of the setting in front.
"""
