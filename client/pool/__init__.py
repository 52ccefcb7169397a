"""The producer pool: concurrent transactions with a fixed set of transactional ids (`TransactionalProducerPool`)."""

from .errors import PoolExhaustedError
from .pool import PoolStatus, TransactionalProducerPool
from .pooled_producer import PooledProducer, PooledTransaction

__all__ = ["PoolExhaustedError", "PoolStatus", "PooledProducer", "PooledTransaction", "TransactionalProducerPool"]
