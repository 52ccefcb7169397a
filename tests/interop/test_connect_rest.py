"""The same REST session with Kafka Connect 4.1 and with ours: equal status codes, equal structure of JSON."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from support.connect_session import MALFORMED, Step, odd_requests, session, unusual_requests
from support.connect_workers import Rest, group

Names = Callable[[str], str]

BY_PLUGINS = ("/connector-plugins", "/connector-plugins?connectorsOnly=false")
"""Lists of what is installed, which differs: of these the first entry is compared."""


async def answers(rest: Rest, steps: list[Step]) -> list[tuple[int, Any]]:
    """Go through the session; what is asked while the group rebalances is asked again."""
    given = []
    for step in steps:
        if step.until is None:
            given.append(await rest.settled(step.method, step.path, step.body, step.headers))
        else:
            given.append((200, await rest.until(step.path, step.until)))
    return given


def structure(value: Any) -> Any:
    """Return the names and types of a JSON value; a list is the structure of its first element, if it has one."""
    if isinstance(value, dict):
        return {name: structure(member) for name, member in value.items()}
    if isinstance(value, list):
        return [structure(value[0])] if value else []
    return "text or null" if value is None or isinstance(value, str) else type(value).__name__


def compared(step: Step, body: Any) -> Any:
    if step.status_only or step.path in MALFORMED:
        return None
    if step.path == "/admin/loggers" and step.headers is None:  # by the names of loggers
        return {str(structure({"level": info["level"]})) for info in body.values()}
    if step.path.startswith("/admin/loggers/") and step.method == "GET" and "last_modified" in body:
        return sorted(body)
    if step.path in BY_PLUGINS:
        return structure(body[:1])
    if isinstance(body, dict) and "error_count" in body:
        return structure(body), body["error_count"], sorted(body["groups"])
    return structure(body)


@pytest.mark.timeout(300)
async def test_both_workers_answer_the_same_session_alike(bootstrap: str, fresh_name: Names, tmp_path: Path) -> None:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs java 17 and mvn")
    source, topic = tmp_path / "source.txt", fresh_name("lines")
    source.write_text("a\nb\n")
    steps = [*session(str(source), topic), *odd_requests(str(source), topic), *unusual_requests(str(source), topic)]
    converter = {"value.converter": "org.apache.kafka.connect.storage.StringConverter"}
    async with (
        group(bootstrap, fresh_name("java"), tmp_path, converter) as java,
        group(bootstrap, fresh_name("ours"), tmp_path, converter) as ours,
    ):
        theirs, own = await asyncio.gather(java.add_java(), ours.add_process())
        expected, given = await asyncio.gather(answers(java.rest(theirs), steps), answers(ours.rest(own), steps))
    different = [
        f"{step.method} {step.path} {step.body}\n  Kafka Connect: {want}\n  oncelog: {got}"
        for step, want, got in zip(steps, expected, given, strict=True)
        if want[0] != got[0] or compared(step, want[1]) != compared(step, got[1])
    ]
    assert not different, "\n".join(different)
    assert len(steps) > 300
