"""SqlSource: rows of tables, or of a query, of any database that SQLAlchemy reaches.

`connector` divides tables among tasks, and `task` polls them. `source` gives the rows of a table or query an order,
`cursors` read on from a position in it, `positions` writes that as a source offset, `types` gives columns schemas.
"""
