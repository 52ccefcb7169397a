"""The data of records: schemas, structs and logical types.

A value without a schema is plain Python: None, bool, int, float, str, bytes, list, dict. A value with a schema has the
Python type that belongs to the schema's type; `struct.py` checks it.
"""
