"""docs/reference/access.md shows the table of requirements in words."""

from __future__ import annotations

import pytest
from oncelog.broker.api.requirements import REQUIREMENTS, Requirement, Scope
from oncelog.broker.dispatcher import _handler_modules
from oncelog.cli.access_docs import page
from oncelog.protocol.apis import all_apis, api_name

SERVED = [
    api_name(request.spec.key) for request in all_apis() if request.__module__.rpartition(".")[2] in _handler_modules()
]
INSIDE = [(api, row) for api, rows in REQUIREMENTS.items() for row in rows if row.scope is Scope.HANDLER]


@pytest.fixture(scope="module")
def text() -> str:
    return page()


@pytest.mark.parametrize("api", SERVED)
def test_each_api_has_as_many_rows_as_requirements(text: str, api: str) -> None:
    rows = text.split(f"\n| {api} |")
    if not REQUIREMENTS[api]:
        assert api in text.partition("Every client may send ")[2].partition("without any permission")[0]
        return
    assert len(rows) == 2
    lines = rows[1].split("\n")
    following = next(number for number, line in enumerate(lines[1:], 1) if not line.startswith("|  |"))
    assert following == len(REQUIREMENTS[api])


@pytest.mark.parametrize(
    "row",
    [
        "| Heartbeat | Read | group | every request | the request fails with GROUP_AUTHORIZATION_FAILED |",
        "| ListOffsets | Describe | topic | each of `topics` | the item gets TOPIC_AUTHORIZATION_FAILED |",
        "| OffsetForLeaderEpoch | Describe, or ClusterAction | topic, or cluster | each of `topics` |",
        "| CreateTopics | Create | topic, or cluster | each of `topics` | the item gets TOPIC_AUTHORIZATION_FAILED |",
        "| OffsetFetch | Describe | group | every request in versions 0-7 |",
        "| WriteTxnMarkers | Alter, or ClusterAction | cluster | every request |",
        "| AlterConfigs | AlterConfigs | topic, group, or cluster for all other types | each of `resources` |",
        "| ListGroups | Describe | group, or cluster | each group | the group is left out |",
    ],
)
def test_a_row_in_words(text: str, row: str) -> None:
    assert f"\n{row}" in text


def test_configs_name_each_of_their_codes(text: str) -> None:
    (row,) = (line for line in text.split("\n") if line.startswith("| DescribeConfigs |"))
    assert all(f"{kind}_AUTHORIZATION_FAILED" in row for kind in ("TOPIC", "GROUP", "CLUSTER"))


@pytest.mark.parametrize(("api", "row"), INSIDE, ids=lambda value: value if isinstance(value, str) else "")
def test_what_a_handler_decides_is_described(api: str, row: Requirement) -> None:
    assert row.when, api
    assert row.refusal, api
