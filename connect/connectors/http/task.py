"""`HttpSourceTask`: polls the API and turns its responses into records.

The source partition is {"url": template}. The offset depends on the pagination; paging.py defines it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...api.records import SourceRecord
from ...api.task import SourceTask
from ...errors import ConnectError
from ..libraries import require
from . import pointers
from .paging import Paging, paging
from .settings import SETTINGS

if TYPE_CHECKING:
    from .requests import Requests


class HttpSourceTask(SourceTask):
    """The only task of the connector. Values are JSON without a schema."""

    def __init__(self) -> None:
        self._requests: Requests | None = None
        self._paging: Paging
        self._next_at = 0.0

    async def start(self, config: Mapping[str, str]) -> None:
        """Read the settings and the offset to continue from. Raises ConnectError."""
        require("aiohttp", "HttpSource", "connect-http")
        from .requests import Requests

        values = SETTINGS.parse(config)
        self._topic: str = values["topic"]
        self._interval_s = values["poll.interval.ms"] / 1000
        self._records = pointers.parse(values["records.pointer"])
        self._key = None if values["key.pointer"] is None else pointers.parse(values["key.pointer"])
        self._partition = {"url": values["url"]}
        self._paging = paging(values, await self.context.offsets.offset(self._partition))
        self._requests = Requests(values)

    async def poll(self) -> list[SourceRecord]:
        """Return the new records of the next response."""
        assert self._requests is not None
        clock = asyncio.get_running_loop().time
        if (wait_s := self._next_at - clock()) > 0:
            await asyncio.sleep(wait_s)
        answer = await self._requests.get(self._paging.url())
        records, more = self._paging.take(answer, self._listed(answer.url, answer.document))
        self._next_at = 0.0 if more else clock() + self._interval_s
        return [
            SourceRecord(
                source_partition=self._partition,
                source_offset=offset,
                topic=self._topic,
                key=self._key_of(answer.url, record),
                value=record,
            )
            for record, offset in records
        ]

    async def stop(self) -> None:
        """Close the HTTP session."""
        if self._requests is not None:
            await self._requests.close()

    def _listed(self, url: str, document: Any) -> list[Any]:
        if document is None:
            return []
        records = pointers.resolve(self._records, document)
        if records is pointers.MISSING:
            raise ConnectError(
                f"the response to GET {url} has nothing at records.pointer. It begins with {document!r:.200}"
            )
        return records if isinstance(records, list) else [] if records is None else [records]

    def _key_of(self, url: str, record: Any) -> Any:
        if self._key is None:
            return None
        key = pointers.resolve(self._key, record)
        if key is pointers.MISSING:
            raise ConnectError(f"a record of {url} has nothing at key.pointer. It begins with {record!r:.200}")
        return key
