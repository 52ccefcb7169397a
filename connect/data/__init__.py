"""The data of records: schemas, structs, logical types.

A value without a schema is plain Python: None, bool, int, float, str, bytes, list, dict. A value with one has the
Python type that its schema names in `schema.py`.
"""
