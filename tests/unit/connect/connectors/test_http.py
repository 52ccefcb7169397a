"""HttpSource against a real server: every pagination with restarts at each record, retries, headers, bounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from oncelog.connect import ConnectError, SourceRecord

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from aiohttp import web  # noqa: E402
from oncelog.connect.connectors.http.connector import HttpSourceConnector  # noqa: E402
from oncelog.connect.connectors.http.paging import paging  # noqa: E402
from oncelog.connect.connectors.http.settings import SETTINGS  # noqa: E402
from oncelog.connect.converters.json_converter import JsonConverter  # noqa: E402
from support.source_tasks import Source  # noqa: E402


class Api:
    """A server with a list of items, in pages of three, in every style."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.requests: list[web.Request] = []
        self.answers: list[web.Response] = []
        """What is answered first, in place of the items."""
        self.url = ""

    def fill(self, count: int) -> None:
        start = len(self.items)
        self.items += [{"id": number, "name": f"r{number}"} for number in range(start, start + count)]

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        if self.answers:
            return self.answers.pop(0)
        query = request.query
        match request.path:
            case "/all":
                return web.json_response(self.items)
            case "/cursor":
                start = int(query.get("after", "c0")[1:])
                page = self.items[start : start + 3]
                more = f"c{start + 3}" if len(self.items) > start + 3 else None
                return web.json_response({"data": {"items": page}, "meta": {"next": more}})
            case "/link":
                start = int(query.get("start", "0"))
                headers = {}
                if len(self.items) > start + 3:
                    headers["Link"] = f'</link?start={start + 3}>; rel="next", </link>; rel="first"'
                return web.json_response(self.items[start : start + 3], headers=headers)
            case "/page":
                number = int(query["page"])
                return web.json_response(self.items[3 * number : 3 * number + 3])
            case "/offset":
                start = int(query["start"])
                return web.json_response(self.items[start : start + 3])
            case "/since":
                after = int(query.get("since", "-1"))
                return web.json_response([item for item in self.items if item["id"] > after][:3])
            case "/from":
                after = int(query.get("from", "0"))
                return web.json_response([item for item in self.items if item["at"] >= after][:4])
        raise web.HTTPNotFound


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    api = Api()
    app = web.Application()
    app.router.add_get("/{path:.*}", api.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield api
    await runner.cleanup()


STYLES: dict[str, tuple[str, dict[str, str]]] = {
    "none": ("/all", {}),
    "cursor": (
        "/cursor?limit=3&after={cursor}",
        {"cursor.pointer": "/meta/next", "records.pointer": "/data/items"},
    ),
    "link": ("/link", {}),
    "page": ("/page?page={page}", {"page.first": "0", "page.size": "3"}),
    "offset": ("/offset?start={offset}", {}),
    "record": ("/since?since={cursor}", {"cursor.pointer": "/id"}),
}


def source(api: Api, style: str, **settings: str) -> Source:
    path, own = STYLES[style]
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config = {"url": api.url + path, "topic": "t", "pagination": style, "poll.interval.ms": "1"}
    return Source(HttpSourceConnector, {**config, "retry.backoff.ms": "0", **own, **given})


def ids(records: list[SourceRecord]) -> list[int]:
    return [record.value["id"] for record in records]


@pytest.mark.parametrize("style", STYLES)
async def test_a_task_goes_on_behind_any_record(api: Api, style: str) -> None:
    for count in (7, 9):
        api.items.clear()
        api.fill(count)
        for keep in range(1, count):
            new = source(api, style)
            first = await new.read(count, keep=keep)
            assert ids(first + await new.read(count - keep)) == list(range(count))
            await new.nothing()


@pytest.mark.parametrize("style", STYLES)
async def test_records_that_appear_later_come_once(api: Api, style: str) -> None:
    new = source(api, style)
    await new.nothing()
    read: list[int] = []
    for more in (1, 1, 1, 1, 5, 3):
        api.fill(more)
        read += ids(await new.read(more))
        await new.nothing()
    assert read == list(range(12))


async def test_an_inclusive_cursor_skips_what_was_read(api: Api) -> None:
    api.items = [{"id": number, "at": number // 2} for number in range(9)]
    for keep in range(1, 9):
        new = source(
            api, "record", url=f"{api.url}/from?from={{cursor}}", cursor_pointer="/at", cursor_inclusive="true"
        )
        first = await new.read(9, keep=keep)
        assert ids(first + await new.read(9 - keep)) == list(range(9))
        await new.nothing()


@pytest.mark.parametrize("page_size", ["4", "0"])
async def test_an_inclusive_cursor_that_more_records_share_than_a_page_has_is_told(
    api: Api, page_size: str, caplog: pytest.LogCaptureFixture
) -> None:
    api.items = [{"id": number, "at": 0} for number in range(5)]
    settings = {"url": f"{api.url}/from?from={{cursor}}", "cursor_pointer": "/at", "cursor_inclusive": "true"}
    new = source(api, "record", page_size=page_size, **settings)
    async with await new.task() as task:
        assert ids(await task.poll()) == [0, 1, 2, 3]
        if page_size == "0":
            assert [await task.poll() for _ in range(2)] == [[], []]
            assert caplog.text.count("To make the task fail in this case, set page.size") == 1
        else:
            with pytest.raises(ConnectError, match=r"4 records, which is page.size.*raise page.size"):
                await task.poll()


async def test_an_inclusive_cursor_waits_for_records_after_a_page_that_is_not_full(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    api.items = [{"id": number, "at": 0} for number in range(3)]
    settings = {"url": f"{api.url}/from?from={{cursor}}", "cursor_pointer": "/at", "cursor_inclusive": "true"}
    new = source(api, "record", page_size="4", **settings)
    assert ids(await new.read(3)) == [0, 1, 2]
    await new.nothing()
    api.items.append({"id": 3, "at": 1})
    assert ids(await new.read(1)) == [3]
    assert not caplog.text


async def test_records_have_keys_and_offsets(api: Api) -> None:
    api.fill(4)
    records = await source(api, "cursor", key_pointer="/name").read(4)
    assert [record.key for record in records] == ["r0", "r1", "r2", "r3"]
    assert records[0].source_partition == {"url": f"{api.url}/cursor?limit=3&after={{cursor}}"}
    assert [record.source_offset for record in records] == [
        {"cursor": None, "records": 1},
        {"cursor": None, "records": 2},
        {"cursor": "c3", "records": 0},
        {"cursor": "c3", "records": 1},
    ]
    assert [request.query_string for request in api.requests] == ["limit=3", "limit=3&after=c3"]


async def test_headers_come_from_a_file_that_is_read_again(api: Api, tmp_path: Path) -> None:
    path = tmp_path / "headers"
    path.write_text("# secret\n  # Authorization: Bearer none\nAuthorization: Bearer one\n")
    api.fill(1)
    new = source(api, "none", headers_file=str(path))
    async with await new.task() as task:
        await task.poll()
        path.write_text("Authorization: Bearer two\n")
        await task.poll()
    assert [request.headers["Authorization"] for request in api.requests] == ["Bearer one", "Bearer two"]
    path.write_text("nonsense\n")
    async with await new.task() as task:
        with pytest.raises(ConnectError, match=r"line 1 of headers.file .* is not a header"):
            await task.poll()


async def test_requests_that_fail_are_repeated_as_the_server_wants(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.fill(1)
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay: float) -> None:
        waits.append(delay)
        await sleep(0)

    monkeypatch.setattr("oncelog.connect.connectors.http.requests.asyncio.sleep", noted)
    api.answers = [
        web.Response(status=429, headers={"Retry-After": "7"}),
        web.Response(status=503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
        web.Response(status=500),
        web.Response(status=503, headers={"Retry-After": "100000"}),
    ]
    assert ids(await source(api, "none", retry_backoff_ms="100").read(1)) == [0]
    assert waits[:4] == [7.0, 0.0, 0.4, 300.0]
    api.answers = [web.Response(status=500) for _ in range(3)]
    async with await source(api, "none", retry_attempts="3").task() as task:
        with pytest.raises(ConnectError, match="failed 3 times, most recently: status 500"):
            await task.poll()
    closed = source(api, "none", retry_attempts="2", url="http://127.0.0.1:1/x")
    async with await closed.task() as task:
        with pytest.raises(ConnectError, match=r"GET http://127.0.0.1:1/x failed 2 times"):
            await task.poll()


@pytest.mark.parametrize(
    "date",
    [
        "Wed, 21 Oct 2015 07:28:00 -0000",
        "soon",
        "1.5",
        "Wed, 21 Oct 99999 07:28:00 GMT",
        "Wed, 21 Oct 2015 07:28 +9999",
    ],
)
async def test_a_retry_after_without_a_zone_is_in_utc_and_an_unreadable_one_is_ignored(
    api: Api, date: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.fill(1)
    waits: list[float] = []
    sleep = asyncio.sleep

    async def noted(delay: float) -> None:
        waits.append(delay)
        await sleep(0)

    monkeypatch.setattr("oncelog.connect.connectors.http.requests.asyncio.sleep", noted)
    api.answers = [web.Response(status=429, headers={"Retry-After": date})]
    assert ids(await source(api, "none", retry_backoff_ms="100").read(1)) == [0]
    assert waits[0] == (0.0 if date.endswith("-0000") else 0.1)


async def test_numbers_keep_their_digits(api: Api) -> None:
    text = '[{"id": 12345678901234567.891}, {"id": 1E+400}, {"id": 1.5}, {"id": 98765432109876543210}, {"id": -0.0}]'
    api.answers = [web.Response(text=text)]
    records = await source(api, "none").read(5)
    converter = JsonConverter()
    converter.configure({"converter.type": "value", "schemas.enable": "false"})
    written = [converter.to_bytes("t", None, record.value) for record in records]
    assert written == [
        b'{"id":12345678901234567.891}', b'{"id":1E+400}', b'{"id":1.5}', b'{"id":98765432109876543210}', b'{"id":-0.0}'
    ]  # fmt: skip


async def test_a_cursor_keeps_its_digits(api: Api) -> None:
    page = '[{"id": 12345678901234567.891}, {"id": 12345678901234567.892}]'
    api.answers = [web.Response(text=page), web.Response(text=page), web.Response(text="[]")]
    new = source(api, "record", cursor_inclusive="true")
    first = await new.read(2, keep=1)
    assert first[0].source_offset == {"cursor": "12345678901234567.891", "equal": 1}
    (second,) = await new.read(1)
    assert second.source_offset == {"cursor": "12345678901234567.892", "equal": 1}
    assert api.requests[-1].query_string == "since=12345678901234567.891"


async def test_a_cursor_beyond_64_bits_is_a_text_in_the_offset(api: Api) -> None:
    api.answers = [web.Response(text='[{"id": 98765432109876543210}]'), web.Response(text="[]")]
    new = source(api, "record")
    (record,) = await new.read(1)
    assert record.source_offset == {"cursor": "98765432109876543210", "equal": 1}
    await new.nothing(1)
    assert api.requests[-1].query_string == "since=98765432109876543210"


@pytest.mark.parametrize(
    ("following", "query"), [(0, "limit=3&after=0"), (0.0, "limit=3&after=0.0"), ("0", "limit=3&after=0")]
)
async def test_a_cursor_may_be_zero(api: Api, following: Any, query: str) -> None:
    pages = [{"data": {"items": [{"id": 1}]}, "meta": {"next": following}}, {"data": {"items": [{"id": 2}]}}]
    api.answers = [web.json_response(page) for page in pages]
    records = await source(api, "cursor").read(2)
    assert [record.value["id"] for record in records] == [1, 2]
    assert api.requests[1].query_string == query


@pytest.mark.parametrize("meta", [{"next": None}, {"next": ""}, {"next": False}, {}])
async def test_a_page_without_a_cursor_is_the_last_one(api: Api, meta: dict[str, Any]) -> None:
    page = {"data": {"items": [{"id": 1}]}, "meta": meta}
    api.answers = [web.json_response(page), web.json_response(page)]
    new = source(api, "cursor")
    (record,) = await new.read(1)
    assert record.source_offset == {"cursor": None, "records": 1}
    await new.nothing(1)


Broken = Callable[[], web.Response]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: web.Response(text="<html>"), "is not JSON"),
        (lambda: web.Response(status=401, text="who?"), "status 401; check headers.file"),
        (lambda: web.Response(status=302, headers={"Location": "http://other/"}), "change url to http://other/"),
        (lambda: web.Response(text=json.dumps("x" * 2000)), "larger than 1000 bytes"),
        (lambda: web.Response(text='{"data": NaN}'), "is not JSON: NaN is not a number"),
        (lambda: web.Response(text='{"data": [-Infinity]}'), "is not JSON: -Infinity is not a number"),
        (
            lambda: web.Response(text='{"data": [1e99999]}'),
            "is not JSON: 1e99999 .* more digits than the limit of 4300",
        ),
        (lambda: web.json_response({"other": 1}), "has nothing at records.pointer"),
    ],
)
async def test_answers_that_cannot_be_used_are_refused(api: Api, answer: Broken, message: str) -> None:
    api.answers = [answer()]
    async with await source(api, "none", max_body_bytes="1000", records_pointer="/data").task() as task:
        with pytest.raises(ConnectError, match=message):
            await task.poll()


async def test_a_next_page_on_another_server_is_refused(api: Api) -> None:
    api.answers = [web.json_response([{"id": 1}], headers={"Link": "<http://other.example/x>; rel=next"})]
    async with await source(api, "link").task() as task:
        with pytest.raises(ConnectError, match="another server"):
            await task.poll()


@pytest.mark.parametrize(
    "url", ["http://other.example/x", "https://127.0.0.1/x", "http://127.0.0.1:1/x", "/link", "http://127.0.0.1:x/"]
)
async def test_an_offset_with_a_page_on_another_server_is_refused(api: Api, url: str) -> None:
    config, offset = source(api, "link").config, {"url": url, "records": 0}
    with pytest.raises(ConnectError, match=f"the offset has the page {url}, which is on another server"):
        await HttpSourceConnector().alter_offsets(config, [({"url": config["url"]}, offset)])
    with pytest.raises(ConnectError, match="another server"):
        paging(SETTINGS.parse(config), offset)
    same = {"url": "http://LOCALHOST/x", "records": 0}
    assert paging(SETTINGS.parse({**config, "url": "http://localhost:80/"}), same).url() == same["url"]


async def test_records_that_disappear_are_noticed(api: Api) -> None:
    api.fill(3)
    new = source(api, "none")
    await new.read(3)
    api.items.pop()
    async with await new.task() as task:
        with pytest.raises(ConnectError, match="has 2 records, but 3 were read before"):
            await task.poll()


async def test_offsets_of_another_pagination_are_refused(api: Api) -> None:
    api.fill(3)
    new = source(api, "none")
    await new.read(3)
    new.config |= {"pagination": "offset"}
    with pytest.raises(ConnectError, match="does not belong to pagination offset"):
        async with await new.task():
            pass
    connector = HttpSourceConnector()
    assert await connector.alter_offsets(new.config, [({"url": "x"}, {"offset": 3}), ({"url": "x"}, None)])
    for partition, offset in (({"u": "x"}, {"offset": 3}), ({"url": "x"}, {"offset": "3"}), ({"url": "x"}, {})):
        with pytest.raises(ConnectError):
            await connector.alter_offsets(new.config, [(partition, offset)])


@pytest.mark.parametrize(
    ("pagination", "sound", "unsound"),
    [
        ("none", {"records": 3}, [{"records": -1}, {"records": "3"}, {"records": True}, {}]),
        ("page", {"page": 2, "records": 3}, [{"page": "2", "records": 3}, {"page": -1, "records": 3}, {"records": 3}]),
        ("link", {"url": None, "records": 3}, [{"url": 5, "records": 3}, {"url": False, "records": 3}]),
        ("cursor", {"cursor": 1.5, "records": 3}, [{"cursor": ["a"], "records": 3}, {"cursor": True, "records": 3}]),
        ("record", {"cursor": "a", "equal": 1}, [{"cursor": {}}, {"cursor": "a", "equal": -1}]),
        ("offset", {"offset": 3}, [{"offset": -3}, {"offset": 3.0}, {"offset": None}]),
    ],
)
async def test_values_that_an_offset_cannot_have_are_refused(
    api: Api, pagination: str, sound: dict[str, Any], unsound: list[dict[str, Any]]
) -> None:
    config = source(api, pagination).config
    partition = {"url": config["url"]}
    assert await HttpSourceConnector().alter_offsets(config, [(partition, sound)])
    for offset in unsound:
        with pytest.raises(ConnectError, match=f"does not belong to pagination {pagination}"):
            await HttpSourceConnector().alter_offsets(config, [(partition, offset)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pagination": "page", "page.size": "3"}, "must contain {page} with pagination page"),
        ({"pagination": "page", "url": "http://h/{page}"}, "page.size: must be set"),
        ({"pagination": "cursor", "url": "http://h/{cursor}"}, "cursor.pointer: must be set"),
        ({"records.pointer": "data"}, "'data' is not a JSON pointer"),
        ({"url": "ftp://h"}, "must be an http:// or https:// address"),
    ],
)
def test_validation_says_what_contradicts_itself(settings: dict[str, str], message: str) -> None:
    outcomes = HttpSourceConnector().validate({"url": "http://h/", "topic": "t", **settings})
    errors = [error for outcome in outcomes for error in outcome.errors]
    assert len(errors) == 1
    assert message in errors[0]
