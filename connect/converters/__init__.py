"""Converters: from the data of a record to the bytes of its key, value and headers, and back."""
