"""Session keys, signed requests between workers, and the settings of distributed workers."""

from __future__ import annotations

import pytest
from oncelog.connect.errors import (
    BadRequestError,
    ConfigValueError,
    ForbiddenError,
    MissingConfigError,
    NotReadyError,
)
from oncelog.connect.group.session_keys import key_expires_ms, needs_new_key, new_session_key
from oncelog.connect.settings.distributed import CONFIG_STORAGE, DistributedConfig
from oncelog.connect.signatures import ALGORITHM_HEADER, SIGNATURE_HEADER, check_signature, signed
from oncelog.connect.stores.config_records import SessionKey

pytest.importorskip("aiohttp", reason="needs the extra: pip install 'oncelog[connect]'")
from oncelog.connect.rest.errors import STATUS

KEY = bytes(range(32))
BODY = b'[{"file":"/tmp/in"}]'
SIGNATURES = [
    ("HmacMD5", "4OV7qfe2oAmg8ggf1Tm6Bg==", 64),
    ("HmacSHA1", "j59a0YrV6Dz8SJZ9h6R01/Zn++I=", 64),
    ("HmacSHA224", "aQOJbEkNrFdYgi5R3JD8af7yBf3MWLBZWUCwbA==", 28),
    ("HmacSHA256", "TF9ZEOphwb3qzIA18TzVTzRzRun6UC0/cfZOO6T9SJk=", 32),
    ("HmacSHA384", "vIzISsIhgykD4MH1MqrSwiMaaJ0Eifqg1xOuHCBybt3C5S+vjI4D9xgXYf/6g25L", 48),
    (
        "HmacSHA512",
        "VHrZZI5SS3mKiboRqKUN//P1ekfons/MkkBqaqZXx5SHgVAigEQV6aqDgJ+2X45MA22mAxxPounxfOCRxpyuvw==",
        64,
    ),
    ("HmacSHA3-256", "HOJe289987jAyTLG//ToZOkp0tCSR5Bx1MPDsknFAJs=", 32),
]
"""Signatures of BODY with KEY, and sizes of generated keys, by javax.crypto."""

WORKER = {
    "key.converter": "StringConverter",
    "value.converter": "JsonConverter",
    "group.id": "g",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
}


@pytest.mark.parametrize(("algorithm", "signature", "size"), SIGNATURES)
def test_signatures_and_keys_are_javas(algorithm: str, signature: str, size: int) -> None:
    assert signed(KEY, BODY, algorithm) == {SIGNATURE_HEADER: signature, ALGORITHM_HEADER: algorithm}
    check_signature(KEY, BODY, signature, algorithm, [algorithm])
    config = DistributedConfig({**WORKER, "inter.worker.key.generation.algorithm": algorithm})
    key = new_session_key(config, 5)
    assert (len(key.key), key.algorithm, key.created_ms) == (size, algorithm, 5)
    assert key.key != new_session_key(config, 5).key


@pytest.mark.parametrize(
    ("key", "body", "signature", "algorithm", "error", "status", "text"),
    [
        (KEY, BODY, None, "HmacSHA256", BadRequestError, 400, "missing required signature"),
        (KEY, BODY, SIGNATURES[3][1], None, BadRequestError, 400, "missing required signature"),
        (KEY, BODY, SIGNATURES[3][1], "HmacNope", BadRequestError, 400, "HmacNope not available"),
        (KEY, BODY, "?!", "HmacSHA256", BadRequestError, 400, "base64"),
        (KEY, BODY, "é", "HmacSHA256", BadRequestError, 400, "base64"),
        (KEY, BODY, SIGNATURES[1][1], "HmacSHA1", BadRequestError, 400, r"'HmacSHA1'.*\[HmacSHA256\]"),
        (None, BODY, SIGNATURES[3][1], "HmacSHA256", NotReadyError, 503, "still starting up"),
        (KEY[:31], BODY, SIGNATURES[3][1], "HmacSHA256", ForbiddenError, 403, "invalid signature"),
        (KEY, BODY + b" ", SIGNATURES[3][1], "HmacSHA256", ForbiddenError, 403, "invalid signature"),
        (KEY, BODY, "", "HmacSHA256", ForbiddenError, 403, "invalid signature"),
    ],
)
def test_requests_that_are_not_signed_with_the_key_are_refused(
    key: bytes | None,
    body: bytes,
    signature: str | None,
    algorithm: str | None,
    error: type[Exception],
    status: int,
    text: str,
) -> None:
    with pytest.raises(error, match=text):
        check_signature(key, body, signature, algorithm, ["HmacSHA256"])
    assert STATUS[error] == status


def test_a_key_is_replaced_when_it_is_too_old_or_of_another_kind() -> None:
    config = DistributedConfig({**WORKER, "inter.worker.key.ttl.ms": "1000"})
    key = SessionKey(KEY, "HmacSHA256", 5_000)
    assert needs_new_key(None, config, 0)
    assert not needs_new_key(key, config, 5_999)
    assert needs_new_key(key, config, 6_000)
    assert key_expires_ms(key, config) == 6_000
    assert needs_new_key(SessionKey(KEY, "HmacSHA512", 5_000), config, 5_000)
    assert needs_new_key(SessionKey(KEY[:16], "HmacSHA256", 5_000), config, 5_000)
    for_ever = DistributedConfig({**WORKER, "inter.worker.key.ttl.ms": "0", "inter.worker.key.size": "128"})
    short = SessionKey(KEY[:16], "HmacSHA256", 5_000)
    assert key_expires_ms(short, for_ever) is None
    assert not needs_new_key(short, for_ever, 2**60)
    assert len(new_session_key(for_ever, 0).key) == 16


def test_the_defaults_of_a_distributed_worker_are_kafka_connects() -> None:
    config = DistributedConfig(WORKER)
    assert {
        name: config[name]
        for name in config.table.keys
        if name.startswith(("inter.", "scheduled.", "connect.p", "worker.", "session.", "heartbeat.", "rebalance."))
    } == {
        "session.timeout.ms": 10_000,
        "heartbeat.interval.ms": 3_000,
        "rebalance.timeout.ms": 60_000,
        "worker.sync.timeout.ms": 3_000,
        "worker.unsync.backoff.ms": 300_000,
        "connect.protocol": "sessioned",
        "scheduled.rebalance.max.delay.ms": 300_000,
        "inter.worker.key.generation.algorithm": "HmacSHA256",
        "inter.worker.key.size": None,
        "inter.worker.key.ttl.ms": 3_600_000,
        "inter.worker.signature.algorithm": "HmacSHA256",
        "inter.worker.verification.algorithms": ["HmacSHA256"],
    }
    assert [config[f"{kind}.storage.replication.factor"] for kind in ("config", "offset", "status")] == [3, 3, 3]
    assert [config[f"{kind}.storage.partitions"] for kind in ("offset", "status")] == [25, 5]


@pytest.mark.parametrize("name", ["group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic"])
def test_a_distributed_worker_needs_a_group_and_its_topics(name: str) -> None:
    with pytest.raises(MissingConfigError, match=name):
        DistributedConfig({key: value for key, value in WORKER.items() if key != name})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connect.protocol", "newest"),
        ("scheduled.rebalance.max.delay.ms", "-1"),
        ("heartbeat.interval.ms", "10000"),
        ("config.storage.replication.factor", "0"),
        ("status.storage.replication.factor", "-2"),
        ("status.storage.partitions", "0"),
        ("inter.worker.key.generation.algorithm", "HmacNope"),
        ("inter.worker.key.size", "39"),
        ("inter.worker.key.ttl.ms", "-1"),
        ("inter.worker.signature.algorithm", "HmacSHA1"),
        ("inter.worker.verification.algorithms", ""),
        ("inter.worker.verification.algorithms", "HmacSHA256,HmacNope"),
    ],
)
def test_wrong_settings_of_a_distributed_worker_are_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigValueError, match=name):
        DistributedConfig({**WORKER, name: value})


def test_internal_topics_have_settings_of_their_own() -> None:
    given = {
        **WORKER,
        "config.storage.min.insync.replicas": "2",
        "config.storage.cleanup.policy": "delete",
        "config.storage.replication.factor": "1",
        "status.storage.segment.bytes": "1048576",
        "bogus": "x",
    }
    config = DistributedConfig(given)
    assert config.topic_settings(CONFIG_STORAGE) == {"min.insync.replicas": "2"}
    assert config.unknown == ["bogus"]


@pytest.mark.parametrize(("support", "transactional"), [("disabled", False), ("PREPARING", True), ("enabled", True)])
def test_the_leader_writes_in_transactions_where_exactly_once_is_prepared(support: str, transactional: bool) -> None:
    config = DistributedConfig({**WORKER, "exactly.once.source.support": support})
    assert config.transactional_leader is transactional
    assert config.leader_transactional_id == "connect-cluster-g"
