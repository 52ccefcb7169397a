"""Kafka Connect in Python: source connectors as asyncio classes, run by workers, exactly-once (KIP-618).

Protocol, REST interface, internal topics and settings are those of Kafka Connect 4.1: a Java worker and ours read each
other's topics. This page is the map of the folder; an import goes to a row further up, never down.

| folder or file | what it owns |
|---|---|
| errors.py | the exceptions of connectors and of the worker, and what each makes the worker do |
| plugins.py | from the name of a plugin, Java's or Python's, to its class |
| config/ | `ConfigDef`: tables of settings, validation, the JSON of the validate endpoint |
| data/ | schemas, structs, logical types, the text form of values |
| api/ | what the author of a connector subclasses and is given |
| converters/, transforms/ | from data to bytes; changes of one record at a time, with predicates |
| connectors/ | the connectors that are built in, each in its own folder, which imports its library when it is used |
| settings/ | what can be set for a worker and for each connector, as tables |
| stores/ | the internal topics in Kafka Connect's own record formats: configs, offsets, status |
| task/ | runs one task: poll → transform → convert → produce, with offsets in the transaction |
| worker/ | runs the connectors and tasks that it is given on this process, and says what became of them |
| group/ | the Connect protocol of distributed workers, as pure code: its bytes, and who runs what |
| herder/ | decides what runs where: `standalone` alone, `distributed` with the group; both are a `Herder` |
| rest/ | Kafka Connect's REST interface on a `Herder` |
| process.py | a worker as a process, from its settings to its end |
| signatures.py | signatures of the requests that workers send each other |
| logging_levels.py, version.py | log levels under Kafka Connect's names; the version of what is built in |

The seams:
- A task gives `SourceRecord`s; `task/pipeline.py` turns each into bytes (transforms, converters, error tolerance) and
  `task/runner.py` hands it to a `Delivery`: at least once, or in the task's transaction together with its offset.
- A store is read into memory through one `TopicLog` per internal topic, from the beginning to the end and then on; a
  pure function turns a record into a change, so that literal records are tests. What a herder decides from is the
  immutable `ClusterConfigState`.
- `worker/` knows neither group nor REST: a herder tells it what to start, stop and fence, and it reports through a
  `StatusListener`.
- `herder/group_member.py` is a worker's membership: the herder asks it for the next rebalance and follows the answer.
- A distributed herder has one loop, `herder/tick_loop.py`. `local_work.py` starts and stops what is assigned,
  `fencing.py` fences earlier tasks, `leadership.py` writes as the leader, `task_reconfiguration.py` asks connectors for
  their tasks, `config_changes.py` collects what the config topic changes. `group_worker.py` wires them to each other,
  and `distributed.py` is the `Herder`.
- A `Herder` answers requests by returning data, or by raising an exception of errors.py; `rest/errors.py` has the one
  table from exceptions to status codes. `herder/answers.py`, `validation.py` and `offset_requests.py` are for every
  herder.
"""

from .api.connector import (
    ConnectorTransactionBoundaries,
    ExactlyOnceSupport,
    SourceConnector,
    SourceConnectorContext,
)
from .api.offsets import OffsetReader
from .api.records import Header, SourceOffset, SourcePartition, SourceRecord
from .api.task import SourceTask, SourceTaskContext
from .api.transactions import TransactionContext
from .config import REQUIRED, ConfigDef, ConfigKey, ConfigValue, Importance, Type, Width
from .data.schema import Field, Schema, SchemaType
from .data.struct import Struct
from .errors import ConfigValueError, ConnectError, DataError, RetriableError

__all__ = [
    "REQUIRED",
    "ConfigDef",
    "ConfigKey",
    "ConfigValue",
    "ConfigValueError",
    "ConnectError",
    "ConnectorTransactionBoundaries",
    "DataError",
    "ExactlyOnceSupport",
    "Field",
    "Header",
    "Importance",
    "OffsetReader",
    "RetriableError",
    "Schema",
    "SchemaType",
    "SourceConnector",
    "SourceConnectorContext",
    "SourceOffset",
    "SourcePartition",
    "SourceRecord",
    "SourceTask",
    "SourceTaskContext",
    "Struct",
    "TransactionContext",
    "Type",
    "Width",
]
