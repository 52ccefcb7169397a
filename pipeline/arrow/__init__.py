"""Convert records to and from Arrow arrays, without a Python object per record."""
