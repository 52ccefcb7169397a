"""Partitions on disk. The names below are all that the rest of the broker uses."""

from .batch_inspection import AT_ONCE_BYTES, Inspection
from .data_directory import DataDirectoryError
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
    "Inspection",
    "InvalidRecords",
    "IsolationLevel",
    "LoadPoint",
    "LogConfig",
    "LogManager",
    "LogRead",
    "PartitionLog",
    "ProducerStateEntry",
    "ProducerStateManager",
    "load_log",
]
