"""Store partitions on disk. The rest of the broker uses only the names that this package exports.

Most of the broker depends only on the protocols `Log` and `Logs`. The classes that implement them are used only by
`node.py`, which assembles the broker, and by tools.
"""

from .batch_inspection import AT_ONCE_BYTES, Inspection
from .data_directory import DataDirectoryError
from .disk_probe import DiskProbe
from .log import Log, Logs, Producers
from .log_config import LogConfig
from .log_loader import LoadPoint, load_log
from .log_manager import LogManager
from .partition_log import PartitionLog
from .producer_state import ProducerStateEntry
from .producer_state_manager import ProducerStateManager
from .results import AppendOrigin, AppendResult, CorruptLog, InvalidRecords, IsolationLevel, LogRead

__all__ = [
    "AT_ONCE_BYTES",
    "AppendOrigin",
    "AppendResult",
    "CorruptLog",
    "DataDirectoryError",
    "DiskProbe",
    "Inspection",
    "InvalidRecords",
    "IsolationLevel",
    "LoadPoint",
    "Log",
    "LogConfig",
    "LogManager",
    "LogRead",
    "Logs",
    "PartitionLog",
    "ProducerStateEntry",
    "ProducerStateManager",
    "Producers",
    "load_log",
]
