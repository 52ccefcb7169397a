"""Consume, transform, produce, exactly once: `Processor` runs a function over topics, one transaction per batch."""

from .metrics import Metrics
from .processes import WorkerDiedError, WorkerProcesses
from .processor import Processor
from .transaction import OutputRecord, ProcessorTransaction

__all__ = ["Metrics", "OutputRecord", "Processor", "ProcessorTransaction", "WorkerDiedError", "WorkerProcesses"]
