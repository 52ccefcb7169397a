"""Consume, transform, produce, exactly once: `Processor` runs a function over topics, one transaction per batch."""

from .processor import Metrics, Processor
from .transaction import OutputRecord, ProcessorTransaction

__all__ = ["Metrics", "OutputRecord", "Processor", "ProcessorTransaction"]
