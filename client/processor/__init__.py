"""Consume-transform-produce with exactly-once: `Processor` runs a function over topics, one transaction per batch."""

from .metrics import Metrics
from .options import GroupAware, Process, Transform
from .processes import WorkerDiedError, WorkerProcesses
from .processor import Processor
from .transaction import OutputRecord, ProcessorTransaction

__all__ = [
    "GroupAware",
    "Metrics",
    "OutputRecord",
    "Process",
    "Processor",
    "ProcessorTransaction",
    "Transform",
    "WorkerDiedError",
    "WorkerProcesses",
]
