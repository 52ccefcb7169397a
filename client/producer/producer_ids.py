"""Gets a producer id for an idempotent producer without transactions, from any broker."""

from __future__ import annotations

import asyncio

from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...settings import INT32_MAX
from ..cluster import Cluster
from ..errors import RetriableError, error_for


async def new_producer_id(cluster: Cluster, max_block_s: float) -> tuple[int, int]:
    """Return a new producer id and its first epoch. Raises the last failure after max.block.ms."""
    deadline = asyncio.get_running_loop().time() + max_block_s
    attempt = 0
    while True:
        try:
            answer = await cluster.call(cluster.any_node(), InitProducerIdRequest(None, INT32_MAX))
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            failure = error_for(answer.error_code, "could not get a producer id for the idempotent producer")
        except RetriableError as error:
            failure = error
        if not failure.retriable or asyncio.get_running_loop().time() >= deadline:
            raise failure
        await asyncio.sleep(cluster.retry_backoff(attempt))
        attempt += 1
