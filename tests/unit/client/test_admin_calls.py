"""The calls of the admin client: bounded as a whole, and nothing goes on behind a failed one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog import Admin
from oncelog.client.admin.calls import AdminCalls
from oncelog.client.errors import KafkaTimeoutError, NetworkError
from oncelog.protocol.errors import ErrorCode
from support.virtual_time import VirtualTimeLoop

GONE = NetworkError(ErrorCode.NETWORK_EXCEPTION, "the broker is gone")


class SilentCluster:
    """Brokers 1 to 3, of which none answers about a coordinator."""

    class metadata:
        brokers = (1, 2, 3)

    async def refresh(self) -> None: ...

    def retry_backoff(self, attempt: int) -> float:
        return 0.1

    async def coordinator(self, *_: object) -> int:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def forget_coordinator(self, *_: object) -> None: ...


def admin_of(cluster: Any) -> Admin:
    admin = Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=10_000)
    admin._cluster = cluster
    return admin


def test_all_requests_of_a_call_share_its_timeout() -> None:
    async def go() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        calls = AdminCalls(SilentCluster(), 10.0)  # type: ignore[arg-type]
        await calls.retrying(lambda: asyncio.sleep(6), "describe the first")
        with pytest.raises(KafkaTimeoutError, match="could not describe the second within 10000 ms"):
            await calls.retrying(lambda: asyncio.sleep(6), "describe the second")
        return loop.time() - began

    assert in_virtual_time(go()) == pytest.approx(10)


def test_fencing_more_ids_than_are_fenced_at_once_ends_within_one_timeout() -> None:
    async def go() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        fenced = await admin_of(SilentCluster()).fence_producers([f"id-{number}" for number in range(500)])
        assert len(fenced) == 500
        assert all(isinstance(one.error, KafkaTimeoutError) for one in fenced.values())
        return loop.time() - began

    assert in_virtual_time(go()) == pytest.approx(10, abs=0.2)


def test_no_request_goes_on_behind_a_broker_that_failed() -> None:
    async def go() -> None:
        under_way: set[int] = set()

        async def ask(node_id: int) -> str:
            if node_id == 2:
                raise GONE
            under_way.add(node_id)
            try:
                await asyncio.sleep(60)
            finally:
                under_way.remove(node_id)
            return "late"

        calls = AdminCalls(SilentCluster(), 1.0)  # type: ignore[arg-type]
        with pytest.raises(KafkaTimeoutError, match="the broker is gone"):
            await calls.of_every_broker(ask, "list things")
        assert not under_way

    in_virtual_time(go())


def in_virtual_time(work: Any) -> Any:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
