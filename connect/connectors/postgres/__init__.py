"""PostgresSource: the rows of tables, then each change of them, by PostgreSQL's logical replication.

| file | what it owns |
|---|---|
| settings.py, connector.py | what can be set, and its validation |
| task.py | snapshot, then stream; offsets, and what the server may forget |
| server.py | publication, slot, tables and their keys, by SQL |
| snapshot.py | the rows of all tables at one moment |
| replication.py | the streaming connection |
| pgoutput.py | decodes what the server streams |
| events.py | from rows and changes to records: keys, Debezium's envelope or the row alone |
| types.py | the schemas of columns, and their values from the text that the server sends |

Replication and the format pgoutput are spoken here, on psycopg's interface to libpq: psycopg has no replication of its
own, and what there is for the format is unmaintained or needs other drivers. It has ten kinds of messages.
"""
