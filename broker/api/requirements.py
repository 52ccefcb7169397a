"""Define, in one table, which operations on which resources each API requires.

`authorization.py` enforces the table if access control is on. An API without a row is then for super users only, so
that a new API is never open by omission. The rows are those of Apache Kafka's KafkaApis and ControllerApis.
docs/reference/access.md is made from the table. Fields of the extension require:

* InitProducerId for a consumer group: Read on the group and on the topics of the claimed partitions, and Write on the
  transactional id. If the broker assigns the transactional id, Write is required on its prefix,
  `<group id>-group-aware-`.
* AddPartitionsToTxn with Session: the same as without it.
* EndTxn with Topics: nothing more. It names only partitions that have been added to the transaction or its session, and
  adding them required Write.
* FindCoordinator for the initialisation of a group's producers: Describe on the group.
* Configs of a group: DescribeConfigs and AlterConfigs on the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.schema import Versions
from .config_sources import ResourceType

_O, _T = AclOperation, AclResourceType


class Scope(Enum):
    """The part of a request that is refused if the operation is denied."""

    REQUEST = "the whole request"
    ITEM = "the items of one array of the request that name the resource"
    HANDLER = "what the API's handler decides: it hides the resource, or answers with an error for it"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One operation that an API requires.

    `field` is the field that contains the resource's name, in the request or, if `array` is set, in its items. `field`
    is empty for the cluster, whose name is constant. It is also empty if each item is itself the name. If `or_cluster`
    is set, the permission for this operation on the cluster suffices instead. `kind_of_config` is true if each item
    contains the type of its config resource in the field `resource_type`.

    If the scope is HANDLER, `when` says in words when the operation is required, and `refusal` says what the client
    gets if the operation is denied. Both are only for readers of the documentation.
    """

    operation: AclOperation
    resource_type: AclResourceType
    scope: Scope
    array: str = ""
    field: str = ""
    versions: Versions = Versions.parse("0+")
    or_cluster: AclOperation | None = None
    kind_of_config: bool = False
    when: str = ""
    refusal: str = ""


CONFIG_RESOURCES: Final = {ResourceType.TOPIC: _T.TOPIC, ResourceType.GROUP: _T.GROUP}
"""The resource type of each type of config resource. For all other types, the settings belong to the cluster."""


def whole(
    operation: AclOperation,
    resource_type: AclResourceType,
    field: str = "",
    *,
    versions: str = "0+",
    or_cluster: AclOperation | None = None,
) -> Requirement:
    """Return the requirement that refuses the request unless the operation is allowed on the resource in `field`.

    If the field is null, nothing is required.
    """
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
    """Return the requirement that refuses each item if the operation is denied on the item's resource.

    `path` is `array.field`, or `array` if the items are names.
    """
    array, _, field = path.partition(".")
    return Requirement(
        operation, resource_type, Scope.ITEM, array, field, Versions.parse(versions), or_cluster=or_cluster
    )


def each_config(operation: AclOperation) -> Requirement:
    """Return the requirement that refuses the config resources on which the operation is denied."""
    return Requirement(operation, _T.CLUSTER, Scope.ITEM, "resources", "resource_name", kind_of_config=True)


def inside(
    operation: AclOperation,
    resource_type: AclResourceType,
    when: str,
    refusal: str,
    *,
    or_cluster: AclOperation | None = None,
) -> Requirement:
    """Return a requirement for which the handler itself refuses or hides the denied resources."""
    return Requirement(operation, resource_type, Scope.HANDLER, or_cluster=or_cluster, when=when, refusal=refusal)


_HIDDEN_TOPIC: Final = (
    "if the request names the topic, the topic gets TOPIC_AUTHORIZATION_FAILED, even if it does not exist; the "
    "response to a request for all topics leaves the topic out"
)
_PARTITIONS_OF_TOPIC: Final = "the partitions of the topic get TOPIC_AUTHORIZATION_FAILED"

_EACH_PARTITION: Final = "the response and each of its partitions get CLUSTER_AUTHORIZATION_FAILED"

_HIDDEN: Final = "the token is left out if both Describe on it and DescribeTokens on its owner are denied"

_CLUSTER_OPERATIONS: Final = "the list of allowed operations on the cluster, if the request asks for it"


REQUIREMENTS: Final[dict[str, tuple[Requirement, ...]]] = {
    # for every client
    "ApiVersions": (),
    "SaslHandshake": (),
    "SaslAuthenticate": (),
    "Metadata": (
        inside(_O.DESCRIBE, _T.TOPIC, "each topic", _HIDDEN_TOPIC),
        inside(
            _O.CREATE,
            _T.TOPIC,
            "each topic that does not exist, if the request may create topics",
            "the topic gets TOPIC_AUTHORIZATION_FAILED",
            or_cluster=_O.CREATE,
        ),
        inside(_O.DESCRIBE, _T.CLUSTER, _CLUSTER_OPERATIONS, "the list is empty"),
    ),
    "DescribeCluster": (inside(_O.DESCRIBE, _T.CLUSTER, _CLUSTER_OPERATIONS, "the list is empty"),),
    "FindCoordinator": (
        inside(
            _O.DESCRIBE,
            _T.GROUP,
            "each group, also with key type 64 (extension)",
            "the key gets GROUP_AUTHORIZATION_FAILED",
        ),
        inside(
            _O.DESCRIBE,
            _T.TRANSACTIONAL_ID,
            "each transactional id",
            "the key gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ),
    ),
    # records
    "Produce": (
        inside(
            _O.WRITE,
            _T.TRANSACTIONAL_ID,
            "a request with a transactional id",
            "the request fails with TRANSACTIONAL_ID_AUTHORIZATION_FAILED; with acks=0, the connection is closed",
        ),
        inside(_O.WRITE, _T.TOPIC, "each topic", f"{_PARTITIONS_OF_TOPIC}; with acks=0, the connection is closed"),
    ),
    "Fetch": (inside(_O.READ, _T.TOPIC, "each topic, including those of a fetch session", _PARTITIONS_OF_TOPIC),),
    "ListOffsets": (each(_O.DESCRIBE, _T.TOPIC, "topics.name"),),
    "OffsetForLeaderEpoch": (each(_O.DESCRIBE, _T.TOPIC, "topics.topic", or_cluster=_O.CLUSTER_ACTION),),
    "DeleteRecords": (each(_O.DELETE, _T.TOPIC, "topics.name"),),
    # topics
    "DescribeTopicPartitions": (inside(_O.DESCRIBE, _T.TOPIC, "each topic", _HIDDEN_TOPIC),),
    "CreateTopics": (
        each(_O.CREATE, _T.TOPIC, "topics.name", or_cluster=_O.CREATE),
        inside(
            _O.DESCRIBE_CONFIGS,
            _T.TOPIC,
            "the settings of each new topic in the response",
            "the topic is created, and the response contains TOPIC_AUTHORIZATION_FAILED instead of its settings",
        ),
    ),
    "DeleteTopics": (
        inside(_O.DELETE, _T.TOPIC, "each topic", "the topic gets TOPIC_AUTHORIZATION_FAILED", or_cluster=_O.DELETE),
        inside(
            _O.DESCRIBE,
            _T.TOPIC,
            "each topic that the request names; for a topic that it identifies by id, only if the deletion is denied",
            "the topic gets TOPIC_AUTHORIZATION_FAILED; the response does not reveal whether the topic exists, or which"
            " name belongs to an id",
        ),
    ),
    "CreatePartitions": (each(_O.ALTER, _T.TOPIC, "topics.name"),),
    "ElectLeaders": (inside(_O.ALTER, _T.CLUSTER, "every request", _EACH_PARTITION),),
    "AlterPartitionReassignments": (inside(_O.ALTER, _T.CLUSTER, "every request", _EACH_PARTITION),),
    "ListPartitionReassignments": (whole(_O.DESCRIBE, _T.CLUSTER),),
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
        inside(
            _O.DESCRIBE,
            _T.TOPIC,
            "each topic",
            f"if the request names the topic, {_PARTITIONS_OF_TOPIC}; the response to a request for all topics leaves"
            " the topic out",
        ),
    ),
    "OffsetDelete": (whole(_O.DELETE, _T.GROUP, "group_id"), each(_O.READ, _T.TOPIC, "topics.name")),
    "ListGroups": (inside(_O.DESCRIBE, _T.GROUP, "each group", "the group is left out", or_cluster=_O.DESCRIBE),),
    "DescribeGroups": (each(_O.DESCRIBE, _T.GROUP, "groups"),),
    "DeleteGroups": (each(_O.DELETE, _T.GROUP, "groups_names"),),
    # transactions
    "InitProducerId": (
        inside(
            _O.READ,
            _T.GROUP,
            "a producer that claims partitions for a consumer group (extension)",
            "the request fails with GROUP_AUTHORIZATION_FAILED",
        ),
        inside(
            _O.READ,
            _T.TOPIC,
            "each topic with partitions that the producer claims (extension)",
            "the request fails with TOPIC_AUTHORIZATION_FAILED",
        ),
        inside(
            _O.WRITE,
            _T.TRANSACTIONAL_ID,
            "the producer's id; if the broker assigns it (extension), its prefix `<group id>-group-aware-`",
            "the request fails with TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ),
        inside(
            _O.IDEMPOTENT_WRITE,
            _T.CLUSTER,
            "a producer without a transactional id and without a group",
            "Write on any one topic is required instead",
        ),
        inside(
            _O.WRITE,
            _T.TOPIC,
            "any one topic, if IdempotentWrite on the cluster is required, but denied",
            "the request fails with CLUSTER_AUTHORIZATION_FAILED",
        ),
    ),
    "AddPartitionsToTxn": (
        whole(_O.WRITE, _T.TRANSACTIONAL_ID, "v3_and_below_transactional_id", versions="0-3"),
        inside(
            _O.WRITE,
            _T.TOPIC,
            "each topic in versions 0-3",
            f"{_PARTITIONS_OF_TOPIC}; all others get OPERATION_NOT_ATTEMPTED",
        ),
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
        inside(_O.DESCRIBE, _T.TOPIC, "each topic of a transaction", "the topic is left out"),
    ),
    "ListTransactions": (inside(_O.DESCRIBE, _T.TRANSACTIONAL_ID, "each transactional id", "the id is left out"),),
    # the cluster
    "AlterReplicaLogDirs": (whole(_O.ALTER, _T.CLUSTER),),
    "DescribeLogDirs": (whole(_O.DESCRIBE, _T.CLUSTER),),
    "DescribeAcls": (whole(_O.DESCRIBE, _T.CLUSTER),),
    "CreateAcls": (whole(_O.ALTER, _T.CLUSTER),),
    "DeleteAcls": (whole(_O.ALTER, _T.CLUSTER),),
    "DescribeClientQuotas": (whole(_O.DESCRIBE_CONFIGS, _T.CLUSTER),),
    "AlterClientQuotas": (whole(_O.ALTER_CONFIGS, _T.CLUSTER),),
    "DescribeUserScramCredentials": (whole(_O.DESCRIBE, _T.CLUSTER),),
    "AlterUserScramCredentials": (
        inside(_O.ALTER, _T.CLUSTER, "every request", "each user gets CLUSTER_AUTHORIZATION_FAILED"),
    ),
    # delegation tokens: owners and renewers need no permission
    "CreateDelegationToken": (
        inside(
            _O.CREATE_TOKENS,
            _T.USER,
            "a token for another owner",
            "the request fails with DELEGATION_TOKEN_AUTHORIZATION_FAILED",
        ),
    ),
    "RenewDelegationToken": (),
    "ExpireDelegationToken": (),
    "DescribeDelegationToken": (
        inside(
            _O.DESCRIBE,
            _T.DELEGATION_TOKEN,
            "each token, unless the client is its owner, its requester or one of its renewers",
            _HIDDEN,
        ),
        inside(_O.DESCRIBE_TOKENS, _T.USER, "the owner of each such token", _HIDDEN),
    ),
}
"""The requirements of each API, in the order in which they are checked. An empty row opens an API to every client."""
