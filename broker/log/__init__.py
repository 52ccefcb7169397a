"""Partitions on disk. The names below are all that the rest of the broker uses."""

from .data_directory import DataDirectoryError
from .log_config import LogConfig
from .log_loader import LoadPoint, load_log
from .log_manager import LogManager
from .partition_log import PartitionLog
from .producer_state import ProducerStateEntry
from .producer_state_manager import ProducerStateManager
from .results import AppendOrigin, AppendResult, CorruptLog, IsolationLevel, LogRead

__all__ = [
    "AppendOrigin",
    "AppendResult",
    "CorruptLog",
    "DataDirectoryError",
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
