"""Identities and how they are proved, for broker, clients and workers: principals, keys, certificates, TLS options,
passwords.

This package opens no sockets and reads no settings. An error message says only what is wrong with a value; the caller
puts the name of the setting in front of the message.
"""
