"""PostgresSource: produces the rows of tables and then each change to them, through PostgreSQL's logical replication.

| file | contents |
|---|---|
| settings.py, connector.py | the settings and their validation |
| task.py | snapshot, then stream; offsets, and the log position up to which the server may discard its log |
| server.py | publication, slot, tables and their keys, through SQL |
| snapshot.py | the rows of all tables at one moment |
| passes.py | determines which changes the rows of an interrupted snapshot already contain |
| replication.py | the streaming connection |
| pgoutput.py | decodes the messages that the server streams |
| events.py | turns rows and changes into records: keys, Debezium's envelope or the row alone |
| types.py | the schemas of columns, and the conversion of their values from text |

The connector has its own implementation of the replication protocol and of the format pgoutput, and uses psycopg's
interface to libpq. psycopg has no support for replication, and existing decoders of the format are unmaintained or need
other drivers. The format has ten kinds of messages.
"""
