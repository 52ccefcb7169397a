"""The producer client: batching, retries that keep the order of records, and transactions."""

from __future__ import annotations

from .batch import Delivery, DeliveryCallback
from .producer import Producer
from .transaction import Transaction

__all__ = ["Delivery", "DeliveryCallback", "Producer", "Transaction"]
