"""Kafka's protocol as bytes and objects: messages, record batches, errors. Sans-I/O: without sockets, files, clocks and
tasks. Imports no other part of oncelog."""
