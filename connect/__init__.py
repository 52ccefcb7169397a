"""Kafka Connect in Python: source connectors as asyncio classes, run by workers with exactly-once delivery (KIP-618).

The protocol, REST interface, internal topics and settings are those of Kafka Connect 4.1: Java workers and oncelog's
workers can read each other's topics. This docstring is the map of the folder. A module imports only from rows above its
own, and from the last four rows.

| folder or file | contents |
|---|---|
| errors.py | the exceptions of connectors and of the worker, and how the worker reacts to each |
| plugins.py, plugin_versions.py | finds the class of a plugin by its Java or Python name; ranges of versions |
| config/ | `ConfigDef`: tables of settings, validation, the JSON of the validate endpoint; Java's regular expressions |
| data/ | schemas, structs, logical types, the text form of values |
| api/ | the classes and types that connector authors subclass and use |
| converters/, transforms/ | converters from data to bytes; transforms, which change one record at a time; predicates |
| connectors/ | the built-in connectors, one folder each; a library is imported when its connector is first used |
| settings/ | tables of the settings of workers and connectors; variables in settings, and how their values are hidden |
| stores/ | the internal topics in Kafka Connect's own record formats: configs, offsets, status |
| task/ | runs one task: poll → transform → convert → produce, with offsets in the transaction |
| worker/ | runs the connectors and tasks assigned to this process, and reports their states |
| group/ | the Connect protocol of distributed workers, as pure code: its bytes, and the assignment of work |
| herder/ | implements `Herder`, which decides what runs where: `standalone` for one worker, `distributed` for a group |
| rest/ | Kafka Connect's REST interface to a `Herder`, and the HTTP server and client that it needs |
| process.py | a worker as a process: reads its settings, starts, runs and stops it |
| calls.py | calls coroutines in the event loop, and plain functions in a daemon thread |
| signatures.py | signatures of the requests that workers send each other |
| stopping.py | cancels an operation when a stop is requested |
| logging_levels.py, version.py | log levels under Kafka Connect's names; the worker's version |

Interfaces between the folders:
- A task returns `SourceRecord`s. `task/pipeline.py` turns each into bytes (transforms, converters, error tolerance).
  `task/runner.py` passes the record and its bytes to a `Delivery`, which produces the record at least once, or in the
  task's transaction together with the record's offset.
- A store reads its internal topic into memory through a `TopicLog`, from the beginning to the end, and then follows the
  topic. A pure function turns a record into a change. Herders base their decisions on the immutable
  `ClusterConfigState`.
- `worker/` does not depend on the group or the REST interface. A herder starts, stops and fences tasks through
  `worker/`, which reports states through a `StatusListener`.
- `herder/group_member.py` is a worker's membership in the group. The herder waits for the next rebalance, and then
  starts and stops work as the assignment says.
- A distributed herder has one loop, `herder/tick_loop.py`. `local_work.py` starts and stops what is assigned to the
  worker, `fencing.py` fences earlier tasks, `leadership.py` writes to the config topic as the leader,
  `task_reconfiguration.py` asks connectors for their task settings, and `config_changes.py` collects changes to the
  config topic. `group_worker.py` connects these parts, and `distributed.py` implements `Herder`.
- A `Herder` answers a request by returning data, or by raising an exception of errors.py. `rest/errors.py` has the only
  table that maps exceptions to status codes. All herders use `herder/answers.py`, `validation.py` and
  `offset_requests.py`.
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
