"""Turns keys and values of records into bytes and back: interfaces, ready-made serdes, and a client of a schema
registry.
"""
