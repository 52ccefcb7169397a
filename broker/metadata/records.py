"""Turn topics, settings, credentials, ACLs, delegation tokens and quotas into records of the metadata log, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ...auth.principal import Principal
from ...protocol.codec import decode_record_value
from ...protocol.messages.metadata_log import (
    AclKey,
    BrokerConfigKey,
    BrokerConfigValue,
    ClientQuotaEntityPart,
    ClientQuotaEntry,
    ClientQuotaKey,
    ClientQuotaValue,
    DelegationTokenKey,
    DelegationTokenValue,
    TopicConfigEntry,
    TopicMetadataKey,
    TopicMetadataValue,
    UserScramCredentialKey,
    UserScramCredentialValue,
)
from ...protocol.schema import Message
from ..acls.acl import Acl
from ..quotas.entity import QuotaEntity, QuotaValues
from .metadata import Topic

if TYPE_CHECKING:  # imported at their first use, not at start
    from ...auth.scram_credentials import ScramCredential
    from ..security.delegation_token import DelegationToken

MetadataRecord: TypeAlias = tuple[Message, Message | None, int]
"""The key of a record, its value (None removes the key), and the version of the value's format."""


def quota_record(entity: QuotaEntity, values: QuotaValues) -> MetadataRecord:
    """Return the record of an entity's quotas. If `values` is empty, the record is a tombstone."""
    key = ClientQuotaKey([ClientQuotaEntityPart(kind, name) for kind, name in entity])
    entries = [ClientQuotaEntry(name, value) for name, value in sorted(values.items())]
    return key, ClientQuotaValue(entries) if values else None, 0


def quota_entity_of(key: ClientQuotaKey) -> QuotaEntity:
    """Return the entity whose quotas the record with this key contains."""
    return tuple((part.entity_type, part.entity_name) for part in key.entity)


def quotas_of(value: bytes) -> QuotaValues:
    """Return the quotas in the value of a record. Raises DecodeError."""
    return {entry.key: entry.value for entry in decode_record_value(ClientQuotaValue, value).quotas}


def broker_config_record(broker: str, name: str, value: str | None) -> MetadataRecord:
    """Return the record of a broker's dynamic setting; the value None gives the tombstone of a removed setting."""
    return BrokerConfigKey(broker, name), None if value is None else BrokerConfigValue(value), 0


def topic_record(topic: Topic) -> MetadataRecord:
    """Return the record that stores a topic."""
    configs = [TopicConfigEntry(name, value) for name, value in sorted(topic.configs.items())]
    return (
        TopicMetadataKey(topic.topic_id),
        TopicMetadataValue(topic.name, topic.partitions, topic.deleting, configs),
        0,
    )


def credential_record(user: str, mechanism: str, credential: ScramCredential | None) -> MetadataRecord:
    """Return the record of a SCRAM credential; None gives the tombstone of a removed credential."""
    value = None
    if credential is not None:
        value = UserScramCredentialValue(
            credential.salt, credential.iterations, credential.stored_key, credential.server_key
        )
    return UserScramCredentialKey(user, mechanism), value, 0


def credential_of(value: bytes) -> ScramCredential:
    """Return the credential in the value of a record. Raises DecodeError."""
    from ...auth.scram_credentials import ScramCredential

    stored = decode_record_value(UserScramCredentialValue, value)
    return ScramCredential(stored.salt, stored.iterations, stored.stored_key, stored.server_key)


def token_record(token_id: str, token: DelegationToken | None) -> MetadataRecord:
    """Return the record of a delegation token; None gives the tombstone of a removed token."""
    value = None
    if token is not None:
        value = DelegationTokenValue(
            str(token.owner),
            str(token.requester),
            [str(renewer) for renewer in token.renewers],
            token.issue_timestamp,
            token.expiry_timestamp,
            token.max_timestamp,
        )
    return DelegationTokenKey(token_id), value, 0


def token_of(token_id: str, value: bytes) -> DelegationToken:
    """Return the token in the value of a record. Raises DecodeError."""
    from ..security.delegation_token import DelegationToken

    stored = decode_record_value(DelegationTokenValue, value)
    return DelegationToken(
        token_id,
        _principal(stored.owner),
        _principal(stored.requester),
        tuple(map(_principal, stored.renewers)),
        stored.issue_timestamp,
        stored.expiry_timestamp,
        stored.max_timestamp,
    )


def _principal(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def acl_key(acl: Acl) -> AclKey:
    """Return the key of an access rule's record."""
    return AclKey(*acl)


def acl_of(key: AclKey) -> Acl:
    """Return the access rule that a record's key encodes."""
    return Acl(
        key.resource_type,
        key.pattern_type,
        key.resource_name,
        key.principal,
        key.host,
        key.operation,
        key.permission_type,
    )
