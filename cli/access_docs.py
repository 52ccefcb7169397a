"""Generate docs/reference/access.md, the permissions that each API requires, from `broker/api/requirements.py`."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from ..broker import handlers
from ..broker.acls.access import CODES
from ..broker.api.requirements import CONFIG_RESOURCES, REQUIREMENTS, Requirement, Scope
from ..protocol.access_rules import AclOperation, AclResourceType
from ..protocol.apis import api_name
from ..protocol.documentation import table

_PAGE: Final = """\
# Permissions of each API

With [access control](../how-to/acls.md), a request needs the permissions in this table. They are the same as in Apache
Kafka, with two exceptions: rows that are marked with *extension*, and
[Produce with a transactional id](../skipped.md#broker-connections-and-requests). The table is generated from the rules
that the broker enforces. Super users need no permission.

A permission is an operation on a resource. Read, Write, Delete and Alter include Describe, and AlterConfigs includes
DescribeConfigs. If a row gives two permissions, such as Describe on a topic or ClusterAction on the cluster, either of
them suffices. *each of `topics`* means each item of the request's array `topics`. If a permission is missing for some
items of a request, the other items are executed, unless the table says otherwise.

{apis}

Every client may send {open_to_all}
without any permission. An API that is not on this page is for super users only.

## The extension

oncelog's [extension](extension.md) adds fields and values to Kafka's requests. They need the following permissions:

| field or value | permissions |
|---|---|
| InitProducerId: `ConsumerGroupId`, `AssignedPartitions` | those that the table above marks with *extension* |
| FindCoordinator: key type 64 | Describe on the group |
| AddPartitionsToTxn: `Session` | those of the request without the field; a session may include `__consumer_offsets` |
| EndTxn: `Topics` | those of the request without the field, because Write on the topics was required when their \
partitions were added to the transaction |
| DescribeConfigs: `transaction.claims` of a group | DescribeConfigs on the group. \
No further permission is needed for the topics and transactional ids in the value |
| IncrementalAlterConfigs: `transaction.claims` of a group | AlterConfigs on the group |
"""


def page() -> str:
    """Return the text of docs/reference/access.md."""
    served = sorted(_served(), key=list(REQUIREMENTS).index)
    rows = [row for name in served for row in _rows(name)]
    open_to_all = [name for name in served if not REQUIREMENTS[name]]
    return _PAGE.format(
        apis=table(("API", "operation", "resource", "required for", "if it is denied"), rows),
        open_to_all=f"{', '.join(open_to_all[:-1])} and {open_to_all[-1]}",
    )


def _served() -> Iterator[str]:
    """Yield the names of all APIs that have a handler and a row in the table."""
    for module in pkgutil.iter_modules(handlers.__path__):
        name = api_name(import_module(f"{handlers.__name__}.{module.name}").handle.api.key)
        if name in REQUIREMENTS:
            yield name


def _rows(name: str) -> Iterator[tuple[str, ...]]:
    for number, row in enumerate(REQUIREMENTS[name]):
        yield name if number == 0 else "", _operations(row), _resource(row), _when(row), _refusal(row)


def _operations(row: Requirement) -> str:
    if row.or_cluster is None or row.or_cluster is row.operation:
        return _words(row.operation)
    return f"{_words(row.operation)}, or {_words(row.or_cluster)}"


def _words(operation: AclOperation) -> str:
    """Return the name of an operation as Kafka's tools print it, for example DescribeConfigs."""
    return "".join(word.capitalize() for word in operation.name.split("_"))


def _resource(row: Requirement) -> str:
    if row.kind_of_config:
        return f"{', '.join(_noun(kind) for kind in CONFIG_RESOURCES.values())}, or cluster for all other types"
    if row.or_cluster is None or row.resource_type is AclResourceType.CLUSTER:
        return _noun(row.resource_type)
    return f"{_noun(row.resource_type)}, or cluster"


def _noun(resource_type: AclResourceType) -> str:
    return resource_type.name.lower().replace("_", " ")


def _when(row: Requirement) -> str:
    if row.scope is Scope.HANDLER:
        return row.when
    what = "every request" if row.scope is Scope.REQUEST else f"each of `{row.array}`"
    versions = str(row.versions)
    return what if versions == "0+" else f"{what} in versions {versions}"


def _refusal(row: Requirement) -> str:
    if row.scope is Scope.HANDLER:
        return row.refusal
    if row.scope is Scope.REQUEST:
        return f"the request fails with {CODES[row.resource_type].name}"
    if row.kind_of_config:
        codes = [CODES[kind].name for kind in (*CONFIG_RESOURCES.values(), row.resource_type)]
        return f"the item gets {', '.join(codes[:-1])} or {codes[-1]}"
    return f"the item gets {CODES[row.resource_type].name}"
