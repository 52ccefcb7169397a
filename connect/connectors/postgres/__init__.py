"""PostgresSource: produces the rows of tables and then each change to them, through PostgreSQL's logical replication.

| file | contents |
|---|---|
| settings.py, connector.py | the settings and their validation |
| task.py | snapshot, then stream; offsets, and the log position up to which the server may discard its log |
| server.py | publication, slot, tables and their keys, through SQL |
| snapshot.py | the rows of all tables at one moment |
| passes.py | finds the changes in the stream that are already part of the rows of an interrupted snapshot |
| replication.py | the streaming connection |
| pgoutput.py | decodes the messages that the server streams |
| events.py | turns rows and changes into records: keys, Debezium's envelope or the row alone |
| types.py | the schemas of columns, and the conversion of their values from text |

The connector implements the replication protocol itself, on psycopg's interface to libpq, because psycopg has no
support for replication. It also decodes the format pgoutput itself: existing decoders are unmaintained or need other
drivers, and the format has only ten kinds of messages.
"""
