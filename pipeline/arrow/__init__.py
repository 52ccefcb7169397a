"""Records ↔ Arrow arrays, without a Python object per record."""
