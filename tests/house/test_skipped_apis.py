"""docs/skipped.md names each API of Apache Kafka 4.1 for clients that the broker does not serve, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from oncelog.broker.api.services import BrokerServices
from oncelog.broker.dispatcher import Dispatcher
from oncelog.protocol.apis import api_name
from structlog import get_logger

SKIPPED = Path(__file__).resolve().parents[2] / "docs" / "skipped.md"

KAFKA = """
AddOffsetsToTxn AddPartitionsToTxn AddRaftVoter AlterClientQuotas AlterConfigs AlterPartitionReassignments
AlterReplicaLogDirs AlterShareGroupOffsets AlterUserScramCredentials ApiVersions ConsumerGroupDescribe
ConsumerGroupHeartbeat CreateAcls CreateDelegationToken CreatePartitions CreateTopics DeleteAcls DeleteGroups
DeleteRecords DeleteShareGroupOffsets DeleteTopics DescribeAcls DescribeClientQuotas DescribeCluster DescribeConfigs
DescribeDelegationToken DescribeGroups DescribeLogDirs DescribeProducers DescribeQuorum DescribeShareGroupOffsets
DescribeTopicPartitions DescribeTransactions DescribeUserScramCredentials ElectLeaders EndTxn ExpireDelegationToken
Fetch FindCoordinator GetTelemetrySubscriptions Heartbeat IncrementalAlterConfigs InitProducerId JoinGroup
LeaveGroup ListConfigResources ListGroups ListOffsets ListPartitionReassignments ListTransactions Metadata
OffsetCommit OffsetDelete OffsetFetch OffsetForLeaderEpoch Produce PushTelemetry RemoveRaftVoter
RenewDelegationToken SaslAuthenticate SaslHandshake ShareAcknowledge ShareFetch ShareGroupDescribe
ShareGroupHeartbeat StreamsGroupDescribe StreamsGroupHeartbeat SyncGroup TxnOffsetCommit UnregisterBroker
UpdateFeatures WriteTxnMarkers
"""
"""The APIs of Apache Kafka 4.1 that clients may send to a broker."""


def test_each_api_that_is_not_served_is_named() -> None:
    services: BrokerServices | None = None
    served = {api_name(api.key) for api in Dispatcher(services, get_logger()).apis()}  # type: ignore[arg-type]
    apis = set(KAFKA.split())
    (told,) = re.findall(r"These APIs are not served.*?library\.\n(.*?)\n- ", SKIPPED.read_text(), re.DOTALL)
    assert {*re.findall(r"\b[A-Z][A-Za-z]+\b", told)} & (apis | served) == apis - served
