"""Turns keys and values of records into bytes and back: interfaces, ready-made serdes, a schema registry."""
