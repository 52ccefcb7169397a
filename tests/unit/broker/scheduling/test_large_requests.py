"""The slots of large requests: given back for a while, and never lost."""

from __future__ import annotations

import asyncio

import pytest
from oncelog.broker.scheduling.large_requests import LargeRequests
from oncelog.protocol.errors import ErrorCode, KafkaError


async def is_free(requests: LargeRequests) -> bool:
    try:
        async with asyncio.timeout(0), requests.slot():
            return True
    except TimeoutError:
        return False


async def test_a_slot_is_others_while_its_request_waits() -> None:
    requests = LargeRequests(1)
    async with requests.slot() as slot:
        assert not await is_free(requests)
        async with slot.given_back():
            assert await is_free(requests)
        assert not await is_free(requests)
    assert await is_free(requests)


async def test_a_wait_behind_the_end_of_a_slot_takes_none() -> None:
    """A deferred answer is made without the slot, and may wait for a transaction."""
    requests = LargeRequests(1)
    async with requests.slot() as slot:
        pass
    async with slot.given_back():
        assert await is_free(requests)
    assert await is_free(requests)


async def test_a_wait_within_a_wait_takes_one_slot_at_its_end() -> None:
    requests = LargeRequests(1)
    async with requests.slot() as slot:
        async with slot.given_back(), slot.given_back():
            assert await is_free(requests)
        assert not await is_free(requests)
    assert await is_free(requests)


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS), asyncio.CancelledError()])
async def test_a_slot_is_free_after_a_wait_that_failed(error: BaseException) -> None:
    requests = LargeRequests(1)
    with pytest.raises(type(error)):
        async with requests.slot() as slot, slot.given_back():
            raise error
    assert await is_free(requests)
