"""Converters: turn a record's key, value and headers into bytes, and back."""
