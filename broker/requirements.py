"""State for each API which operations on which resources it requires, in one table.

`authorization.py` enforces the table. An API without a row is refused to all clients but super users while there is
access control, so that a new API is never open by omission. The rows are those of Apache Kafka's KafkaApis and
ControllerApis. Fields of the extension require:

* InitProducerId for a consumer group: Read on the group and on the topics of the claimed partitions, and Write on the
  transactional id. If the broker assigns the transactional id, Write is required on its prefix,
  `<group id>-group-aware-`.
* AddPartitionsToTxn with Session: what it requires without.
* EndTxn with Topics: nothing more. It names only partitions that have been added to the transaction or its session, and
  adding them required Write.
* FindCoordinator for the initialisation of a group's producers: Describe on the group.
* Configs of a group: DescribeConfigs and AlterConfigs on the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ..protocol.access_rules import AclOperation, AclResourceType
from ..protocol.schema import Versions
from .config_sources import ResourceType

_O, _T = AclOperation, AclResourceType


class Scope(Enum):
    """What is refused if the operation is denied."""

    REQUEST = "the whole request"
    ITEM = "the items of one array of the request that name the resource"
    HANDLER = "what the API's handler decides: it hides the resource, or answers with an error for it"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One operation that an API requires.

    `field` is the request's field with the name of the resource; `array` is the array whose items have the field. Both
    are empty if they are not needed: the name of the cluster is constant, and an item may be the name itself. If
    `or_cluster` is set, this operation on the cluster suffices, too. `kind_of_config` is true if each item names the
    kind of its resource in the field `resource_type`, with the numbers of config resources.
    """

    operation: AclOperation
    resource_type: AclResourceType
    scope: Scope
    array: str = ""
    field: str = ""
    versions: Versions = Versions(0, 1 << 15)
    or_cluster: AclOperation | None = None
    kind_of_config: bool = False


CONFIG_RESOURCES: Final = {ResourceType.TOPIC: _T.TOPIC, ResourceType.GROUP: _T.GROUP}
"""The resource types of config resources. Those of all other config resources are settings of the cluster."""


def whole(
    operation: AclOperation,
    resource_type: AclResourceType,
    field: str = "",
    *,
    versions: str = "0+",
    or_cluster: AclOperation | None = None,
) -> Requirement:
    """Refuse the request unless the operation on the resource that `field` names is allowed; null names none."""
    return Requirement(
        operation, resource_type, Scope.REQUEST, "", field, Versions.parse(versions), or_cluster=or_cluster
    )


def each(
    operation: AclOperation,
    resource_type: AclResourceType,
    path: str,
    *,
    versions: str = "0+",
    or_cluster: AclOperation | None = None,
) -> Requirement:
    """Refuse the items for whose resource the operation is denied; `path` is `array.field`, or `array` of names."""
    array, _, field = path.partition(".")
    return Requirement(
        operation, resource_type, Scope.ITEM, array, field, Versions.parse(versions), or_cluster=or_cluster
    )


def each_config(operation: AclOperation) -> Requirement:
    """Refuse the config resources for which the operation is denied."""
    return Requirement(operation, _T.CLUSTER, Scope.ITEM, "resources", "resource_name", kind_of_config=True)


def inside(operation: AclOperation, resource_type: AclResourceType) -> Requirement:
    """Leave it to the handler to refuse or to hide what is denied."""
    return Requirement(operation, resource_type, Scope.HANDLER)


REQUIREMENTS: Final[dict[str, tuple[Requirement, ...]]] = {
    # for every client
    "ApiVersions": (),
    "SaslHandshake": (),
    "SaslAuthenticate": (),
    "Metadata": (
        inside(_O.DESCRIBE, _T.TOPIC),
        inside(_O.CREATE, _T.TOPIC),
        inside(_O.CREATE, _T.CLUSTER),
        inside(_O.DESCRIBE, _T.CLUSTER),
    ),
    "DescribeCluster": (inside(_O.DESCRIBE, _T.CLUSTER),),
    "FindCoordinator": (inside(_O.DESCRIBE, _T.GROUP), inside(_O.DESCRIBE, _T.TRANSACTIONAL_ID)),
    # records
    "Produce": (inside(_O.WRITE, _T.TOPIC), inside(_O.WRITE, _T.TRANSACTIONAL_ID)),
    "Fetch": (inside(_O.READ, _T.TOPIC),),
    "ListOffsets": (each(_O.DESCRIBE, _T.TOPIC, "topics.name"),),
    "OffsetForLeaderEpoch": (each(_O.DESCRIBE, _T.TOPIC, "topics.topic", or_cluster=_O.CLUSTER_ACTION),),
    "DeleteRecords": (each(_O.DELETE, _T.TOPIC, "topics.name"),),
    # topics
    "DescribeTopicPartitions": (inside(_O.DESCRIBE, _T.TOPIC),),
    "CreateTopics": (
        each(_O.CREATE, _T.TOPIC, "topics.name", or_cluster=_O.CREATE),
        inside(_O.DESCRIBE_CONFIGS, _T.TOPIC),
    ),
    "DeleteTopics": (
        inside(_O.DELETE, _T.TOPIC),
        inside(_O.DESCRIBE, _T.TOPIC),
        inside(_O.DELETE, _T.CLUSTER),
    ),
    "CreatePartitions": (each(_O.ALTER, _T.TOPIC, "topics.name"),),
    # configs
    "DescribeConfigs": (each_config(_O.DESCRIBE_CONFIGS),),
    "AlterConfigs": (each_config(_O.ALTER_CONFIGS),),
    "IncrementalAlterConfigs": (each_config(_O.ALTER_CONFIGS),),
    "ListConfigResources": (whole(_O.DESCRIBE_CONFIGS, _T.CLUSTER),),
    # groups
    "JoinGroup": (whole(_O.READ, _T.GROUP, "group_id"),),
    "SyncGroup": (whole(_O.READ, _T.GROUP, "group_id"),),
    "Heartbeat": (whole(_O.READ, _T.GROUP, "group_id"),),
    "LeaveGroup": (whole(_O.READ, _T.GROUP, "group_id"),),
    "ConsumerGroupHeartbeat": (whole(_O.READ, _T.GROUP, "group_id"),),
    "OffsetCommit": (whole(_O.READ, _T.GROUP, "group_id"), each(_O.READ, _T.TOPIC, "topics.name")),
    "OffsetFetch": (
        whole(_O.DESCRIBE, _T.GROUP, "group_id", versions="0-7"),
        each(_O.DESCRIBE, _T.GROUP, "groups.group_id", versions="8+"),
        inside(_O.DESCRIBE, _T.TOPIC),
    ),
    "OffsetDelete": (whole(_O.DELETE, _T.GROUP, "group_id"), each(_O.READ, _T.TOPIC, "topics.name")),
    "ListGroups": (inside(_O.DESCRIBE, _T.CLUSTER), inside(_O.DESCRIBE, _T.GROUP)),
    "DescribeGroups": (each(_O.DESCRIBE, _T.GROUP, "groups"),),
    "DeleteGroups": (each(_O.DELETE, _T.GROUP, "groups_names"),),
    # transactions
    "InitProducerId": (
        inside(_O.WRITE, _T.TRANSACTIONAL_ID),
        inside(_O.IDEMPOTENT_WRITE, _T.CLUSTER),
        inside(_O.WRITE, _T.TOPIC),
        inside(_O.READ, _T.GROUP),
        inside(_O.READ, _T.TOPIC),
    ),
    "AddPartitionsToTxn": (
        whole(_O.WRITE, _T.TRANSACTIONAL_ID, "v3_and_below_transactional_id", versions="0-3"),
        inside(_O.WRITE, _T.TOPIC),
        whole(_O.CLUSTER_ACTION, _T.CLUSTER, versions="4+"),
    ),
    "AddOffsetsToTxn": (
        whole(_O.WRITE, _T.TRANSACTIONAL_ID, "transactional_id"),
        whole(_O.READ, _T.GROUP, "group_id"),
    ),
    "TxnOffsetCommit": (
        whole(_O.WRITE, _T.TRANSACTIONAL_ID, "transactional_id"),
        whole(_O.READ, _T.GROUP, "group_id"),
        each(_O.READ, _T.TOPIC, "topics.name"),
    ),
    "EndTxn": (whole(_O.WRITE, _T.TRANSACTIONAL_ID, "transactional_id"),),
    "WriteTxnMarkers": (whole(_O.ALTER, _T.CLUSTER, or_cluster=_O.CLUSTER_ACTION),),
    "DescribeProducers": (each(_O.READ, _T.TOPIC, "topics.name"),),
    "DescribeTransactions": (
        each(_O.DESCRIBE, _T.TRANSACTIONAL_ID, "transactional_ids"),
        inside(_O.DESCRIBE, _T.TOPIC),
    ),
    "ListTransactions": (inside(_O.DESCRIBE, _T.TRANSACTIONAL_ID),),
    # the cluster
    "DescribeLogDirs": (whole(_O.DESCRIBE, _T.CLUSTER),),
    "DescribeAcls": (whole(_O.DESCRIBE, _T.CLUSTER),),
    "CreateAcls": (whole(_O.ALTER, _T.CLUSTER),),
    "DeleteAcls": (whole(_O.ALTER, _T.CLUSTER),),
    "DescribeClientQuotas": (whole(_O.DESCRIBE_CONFIGS, _T.CLUSTER),),
    "AlterClientQuotas": (whole(_O.ALTER_CONFIGS, _T.CLUSTER),),
    "DescribeUserScramCredentials": (whole(_O.DESCRIBE, _T.CLUSTER),),
    "AlterUserScramCredentials": (inside(_O.ALTER, _T.CLUSTER),),
}
"""The requirements by the name of the API, checked in this order. An empty row opens an API to every client."""
