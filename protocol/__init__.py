"""Kafka's protocol as bytes and objects: messages, record batches, errors.

This package is sans-I/O: it uses no sockets, files, clocks or tasks. It imports no other part of oncelog.
"""
