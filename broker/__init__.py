"""The broker. Its packages form layers, and a package uses only lower layers. ARCHITECTURE.md describes the layers.

`node` assembles the broker, `embedded` runs it inside another program, `dispatcher` passes requests to their handlers,
and `config` is the table of its settings.
"""
