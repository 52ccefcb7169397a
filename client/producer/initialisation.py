"""Implements `init_transactions`: either with a claim on the group's partitions at the group's home, or as in Kafka.

Each initialisation chooses between the two (see the setting consumer.group.aware.transaction):

* group-aware (transaction extension): the request goes to the transaction coordinator that is the group's home
  (KeyType 64), and names this producer's partitions and the generation that assigned them. All later requests go to
  the home of the transactional id. The broker may assign the id.
* fallback: the transactional id's coordinator gives the next epoch, and the group coordinator checks member and
  generation when offsets are committed (KIP-447). The fallback needs a transactional.id, and a member id that the group
  coordinator can check.

A broker that was downgraded after its ApiVersions response refuses the group-aware request, and changes nothing. Then
the fallback is used as well.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.init_producer_id import AssignedPartitions, InitProducerIdRequest
from ..cluster import KeyType
from ..config import ProducerConfig
from ..connection import Connection
from ..errors import ConfigError, FatalError, IllegalGenerationError, UnsupportedVersionError, error_for
from ..validation import partitions_of
from ..values import ConsumerAssignment, ConsumerGroupMetadata, GroupAssignment
from ..versions import GROUP_AWARE_TRANSACTION
from .coordinator_client import CoordinatorClient, Refusals
from .transaction_calls import TransactionCalls
from .transaction_manager import TransactionManager

log = logging.getLogger(__name__)

SETTING = "consumer.group.aware.transaction"


class Plan(NamedTuple):
    """The arguments of an initialisation: the group whose offsets are committed, and the assignment whose partitions
    are claimed. Each of the two is None if it is not used.
    """

    group: ConsumerGroupMetadata | None
    assignment: GroupAssignment | None


class Initialisation:
    """Initialises a transactional producer."""

    def __init__(
        self,
        config: ProducerConfig,
        coordinators: CoordinatorClient,
        calls: TransactionCalls,
        manager: TransactionManager,
    ) -> None:
        self._config = config
        self._coordinators = coordinators
        self._calls = calls
        self._manager = manager

    def plan(self, assignment: GroupAssignment | None, group_id: str | None) -> Plan:
        """Combine arguments and settings into a plan. Raises ConfigError if the group is missing, or if two
        different groups are given. Raises TypeError for an `assignment` that is not a GroupAssignment.
        """
        if assignment is not None and not isinstance(assignment, GroupAssignment):
            raise TypeError(f"{assignment!r} is not a GroupAssignment; pass the result of consumer.group_assignment()")
        if assignment is not None:
            partitions_of(assignment.partitions)
        of_assignment = assignment.group_id if isinstance(assignment, ConsumerAssignment) else ""
        if of_assignment and group_id is not None and group_id != of_assignment:
            raise ConfigError(
                "group_id", f"{group_id!r} is not the group of the assignment ({of_assignment!r}): leave group_id out"
            )
        group = of_assignment or group_id or self._config.transactional_group_id
        if not group:
            if assignment is not None:
                raise ConfigError(
                    "transactional.group.id",
                    "init_transactions(GroupAssignment) needs the group: set it, or pass group_id",
                )
            return Plan(None, None)
        if assignment is None:
            nothing = GroupAssignment() if self._manager.transactional_id is None else None
            return Plan(ConsumerGroupMetadata(group), nothing)
        if isinstance(assignment, ConsumerAssignment):
            return Plan(assignment.metadata._replace(group_id=group), assignment)
        return Plan(ConsumerGroupMetadata(group, assignment.generation_id), assignment)

    async def run(self, plan: Plan) -> None:
        """Initialise the producer. Afterwards the manager contains the producer's id and epoch, and the group.

        Raises ConfigError or UnsupportedVersionError if the broker lacks a feature that the settings need,
        IllegalGenerationError for an outdated assignment, KafkaTimeoutError after max.block.ms, and other errors of the
        coordinator.
        """
        mode = self._config.consumer_group_aware_transaction
        self._manager.group = plan.group
        why = f"{SETTING} is false"
        try:
            if mode == "require" or (mode and plan.assignment is not None):
                await self._ask_broker()
                if plan.assignment is not None:
                    return await self._claim(plan)
        except _NotOfferedError as error:
            if mode == "require":
                raise UnsupportedVersionError(
                    ErrorCode.UNSUPPORTED_VERSION, f"{error.message}, but {SETTING}=require needs it"
                ) from error
            why = error.message
        self._check_fall_back(plan, why)
        await self._calls.init_producer_id()

    def _check_fall_back(self, plan: Plan, why: str) -> None:
        if self._manager.transactional_id is None:
            raise ConfigError(
                "transactional.id",
                f"is needed, because {why} and the broker therefore assigns no id: set transactional.id, or use a "
                f"broker with the feature and {SETTING}=true",
                SETTING,
            )
        if plan.assignment is not None and (plan.group is None or not plan.group.member_id):
            raise ConfigError(
                SETTING,
                f"the assignment has no member id, which is needed because {why}: the group coordinator can then fence "
                "only by member and generation (KIP-447). Call init_transactions(consumer.group_assignment()) with a "
                "consumer that subscribes, or use a broker with the feature",
                "transactional.group.id",
            )

    # -- group-aware

    async def _ask_broker(self) -> None:
        _require_feature(await self._coordinators.cluster.any_connection(self._coordinators.max_block_s))

    async def _claim(self, plan: Plan) -> None:
        manager, group, assignment = self._manager, plan.group, plan.assignment
        assert group is not None
        assert assignment is not None
        try:
            await self._coordinators.cluster.coordinator(
                KeyType.GROUP_HOME, group.group_id, self._coordinators.max_block_s
            )
        except KafkaError as error:
            if error.code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION):
                raise _NotOfferedError(error.code, "the broker no longer supports group-aware transactions") from error
            raise
        used: list[Connection] = []

        def build(connection: Connection) -> tuple[InitProducerIdRequest, int]:
            _require_feature(connection)
            used[:] = [connection]
            request = InitProducerIdRequest(
                manager.transactional_id,
                self._config.transaction_timeout_ms,
                consumer_group_id=group.group_id,
                consumer_group_generation=assignment.generation_id,
                assigned_partitions=_by_topic(assignment),
            )
            return request, connection.version_of(InitProducerIdRequest)

        try:
            answer = await self._coordinators.ask(
                KeyType.GROUP_HOME,
                group.group_id,
                build,
                lambda answer: answer.error_code,
                "InitProducerId",
                refusals=_refusals(group, assignment),
            )
        except _NotOfferedError:
            for connection in used:
                connection.close(f"the broker no longer has the feature {GROUP_AWARE_TRANSACTION}")
            raise
        if manager.transactional_id is None:
            if not answer.transactional_id:
                raise FatalError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker assigned no transactional id")
            manager.transactional_id = answer.transactional_id
            log.info("the broker assigned transactional id %s", answer.transactional_id)
        self._calls.initialized(answer)
        self._calls.learn(await self._coordinators.connection(KeyType.TRANSACTION, manager.transactional_id))
        manager.group_aware = True


class _NotOfferedError(KafkaError):
    """The broker does not have the feature, or no longer has it."""


def _require_feature(connection: Connection) -> None:
    if not connection.extension_aware:
        raise _NotOfferedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"broker {connection.address} does not have the feature {GROUP_AWARE_TRANSACTION}",
        )


def _by_topic(assignment: GroupAssignment) -> list[AssignedPartitions]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(assignment.partitions):
        topics.setdefault(topic, []).append(index)
    return [AssignedPartitions(topic, indexes) for topic, indexes in topics.items()]


def _refusals(group: ConsumerGroupMetadata, assignment: GroupAssignment) -> Refusals:
    """Return the error codes with which the group's home may refuse the request, each with its exception.

    After such an error the producer is not initialised, but may be initialised with other arguments.
    """
    what = f"group {group.group_id!r}, generation {assignment.generation_id}, {len(assignment.partitions)} partitions"

    def plain(code: ErrorCode) -> KafkaError:
        return error_for(code, f"{what}: {code.text}")

    def too_large(code: ErrorCode) -> KafkaError:
        return error_for(
            code,
            f"{what}: the broker refused the request as invalid; its group.transaction.max.partitions limits the number"
            " of partitions, and its transactional.id.max.bytes the length of transactional.id",
        )

    return {
        ErrorCode.UNSUPPORTED_VERSION: lambda code: _NotOfferedError(
            code, f"the broker ({what}) no longer has the feature {GROUP_AWARE_TRANSACTION}"
        ),
        ErrorCode.ILLEGAL_GENERATION: lambda code: IllegalGenerationError(
            code,
            f"{what}: this is not the group's current generation, or other producers of this generation keep claiming "
            "the partitions",
        ),
        ErrorCode.INVALID_REQUEST: too_large,
        ErrorCode.INVALID_GROUP_ID: plain,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: plain,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: plain,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: plain,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: plain,
    }
