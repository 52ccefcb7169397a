"""Partitions on disk. The names below are all that the rest of the broker uses.

It knows the protocols `Log` and `Logs` alone; only `broker.py`, which puts the parts together, and tools name the
classes that stand behind them."""

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
