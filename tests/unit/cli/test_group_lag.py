"""Lags of groups whose offsets cannot be read."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from oncelog.cli.group_lag import lag_of_groups
from oncelog.client.admin import Admin
from oncelog.client.errors import ErrorCode, KafkaError


class Cluster:
    """The method of `Admin` that is called. It refuses the group "secret", and responds late about the group "slow"."""

    def __init__(self) -> None:
        self.is_asked = False

    async def group_offsets(self, group_id: str) -> dict[Any, Any]:
        if group_id == "secret":
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "secret may not be described")
        self.is_asked = True
        try:
            return await asyncio.Event().wait() and {}
        finally:
            self.is_asked = False


async def test_the_first_error_is_raised_and_nothing_is_still_being_asked() -> None:
    cluster = Cluster()
    with pytest.raises(KafkaError, match="secret may not be described") as raised:
        async with asyncio.timeout(10):
            await lag_of_groups(cast(Admin, cluster), ["slow", "secret"])
    assert raised.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert not cluster.is_asked
