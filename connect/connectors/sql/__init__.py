"""SqlSource: produces the rows of tables or of a query, from any database that SQLAlchemy supports.

`connector` divides tables among tasks, and `task` polls them. `source` defines an order of a table's or query's rows,
`cursors` reads the rows after a position in this order, `positions` encodes positions as source offsets, and `types`
maps columns to schemas. `infinity` reads PostgreSQL's infinite dates.
"""
