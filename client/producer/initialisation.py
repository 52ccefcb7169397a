"""`init_transactions`: with the group's partitions claimed at the group's home, or as Kafka does it.

Owns the choice between the two (see the setting consumer.group.aware.transaction), made anew for each initialisation,
and what has to be there for the second:

* group-aware (transaction extension): the request goes to the transaction coordinator that is the group's home
  (KeyType 64) and says which partitions this producer works on since which generation. All later requests go to the
  home of the transactional id. An id may be assigned by the broker.
* fall-back: the id's own coordinator gives the next epoch, and the group coordinator checks member and generation when
  offsets are committed (KIP-447). That needs a transactional.id, and a member id to check.

A broker that was downgraded between its ApiVersions answer and the request refuses the request and has changed nothing:
then the fall-back is used as well.
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
from ..given import partitions_of
from ..values import ConsumerAssignment, ConsumerGroupMetadata, GroupAssignment
from ..versions import GROUP_AWARE_TRANSACTION
from .coordinator_call import CoordinatorCaller, Refusals
from .transaction_calls import TransactionCalls
from .transaction_manager import TransactionManager

log = logging.getLogger(__name__)

SETTING = "consumer.group.aware.transaction"


class Plan(NamedTuple):
    """The arguments of an initialisation: the group whose offsets are committed, and its claims (None: none)."""

    group: ConsumerGroupMetadata | None
    assignment: GroupAssignment | None


class Initialisation:
    """Initialises a transactional producer."""

    def __init__(
        self, config: ProducerConfig, caller: CoordinatorCaller, calls: TransactionCalls, manager: TransactionManager
    ) -> None:
        self._config = config
        self._caller = caller
        self._calls = calls
        self._manager = manager

    def plan(self, assignment: GroupAssignment | None, group_id: str | None) -> Plan:
        """Put together what was given and what is set; raises ConfigError where the group is missing or given twice."""
        if assignment is not None and not isinstance(assignment, GroupAssignment):
            raise TypeError(f"{assignment!r} is not a GroupAssignment, such as consumer.group_assignment() returns")
        if assignment is not None:
            partitions_of(assignment.partitions)
        of_assignment = assignment.group_id if isinstance(assignment, ConsumerAssignment) else ""
        if of_assignment and group_id is not None and group_id != of_assignment:
            raise ConfigError("group_id", f"{group_id!r} is not the assignment's, {of_assignment!r}: leave it out")
        group = of_assignment or group_id or self._config.transactional_group_id
        if not group:
            if assignment is not None:
                raise ConfigError(
                    "transactional.group.id",
                    "init_transactions(GroupAssignment) needs the group: set it, or give group_id",
                )
            return Plan(None, None)
        if assignment is None:
            nothing = GroupAssignment() if self._manager.transactional_id is None else None
            return Plan(ConsumerGroupMetadata(group), nothing)
        if isinstance(assignment, ConsumerAssignment):
            return Plan(assignment.metadata._replace(group_id=group), assignment)
        return Plan(ConsumerGroupMetadata(group, assignment.generation_id), assignment)

    async def run(self, plan: Plan) -> None:
        """Initialise; the manager then has the producer's id and epoch, and knows the group.

        Raises ConfigError or UnsupportedVersionError where the broker does not have what the settings need,
        IllegalGenerationError, KafkaTimeoutError after max.block.ms, and what the coordinator says otherwise.
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
                    ErrorCode.UNSUPPORTED_VERSION, f"{error.message}, and {SETTING}=require"
                ) from error
            why = error.message
        self._check_fall_back(plan, why)
        await self._calls.init_producer_id()

    def _check_fall_back(self, plan: Plan, why: str) -> None:
        if self._manager.transactional_id is None:
            raise ConfigError(
                "transactional.id",
                f"is needed because {why}, so that no broker assigns one: set transactional.id, or use a broker with "
                f"the feature and {SETTING}=true",
                SETTING,
            )
        if plan.assignment is not None and (plan.group is None or not plan.group.member_id):
            raise ConfigError(
                SETTING,
                f"the assignment has no member id, which is needed because {why}: the group coordinator can then only "
                "fence by member and generation (KIP-447). Give init_transactions(consumer.group_assignment()) of a "
                "consumer that subscribes, or use a broker with the feature",
                "transactional.group.id",
            )

    # -- group-aware

    async def _ask_broker(self) -> None:
        _require_feature(await self._caller.cluster.any_connection(self._caller.max_block_s))

    async def _claim(self, plan: Plan) -> None:
        manager, group, assignment = self._manager, plan.group, plan.assignment
        assert group is not None
        assert assignment is not None
        try:
            await self._caller.cluster.coordinator(KeyType.GROUP_HOME, group.group_id, self._caller.max_block_s)
        except KafkaError as error:
            if error.code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION):
                raise _NotOfferedError(error.code, "the broker no longer knows the homes of groups") from error
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
            answer = await self._caller.ask(
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
        self._calls.learn(await self._caller.connection(KeyType.TRANSACTION, manager.transactional_id))
        manager.group_aware = True


class _NotOfferedError(KafkaError):
    """The broker does not have the feature (any more)."""


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
    """What the group's home may refuse: the producer is not initialised, and may be with something else."""
    what = f"group {group.group_id!r}, generation {assignment.generation_id}, {len(assignment.partitions)} partitions"

    def plain(code: ErrorCode) -> KafkaError:
        return error_for(code, f"{what}: {code.text}")

    def too_many(code: ErrorCode) -> KafkaError:
        return error_for(
            code, f"{what}: refused as invalid; the broker's group.transaction.max.partitions limits the partitions"
        )

    return {
        ErrorCode.UNSUPPORTED_VERSION: lambda code: _NotOfferedError(
            code, f"the broker of {what} no longer has the feature {GROUP_AWARE_TRANSACTION}"
        ),
        ErrorCode.ILLEGAL_GENERATION: lambda code: IllegalGenerationError(
            code, f"{what}: it is not the group's present generation, or others of it keep taking the partitions"
        ),
        ErrorCode.INVALID_REQUEST: too_many,
        ErrorCode.INVALID_GROUP_ID: plain,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: plain,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: plain,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: plain,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: plain,
    }
