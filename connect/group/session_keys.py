"""Decides when the leader must write a new session key, and creates the key (KIP-507)."""

from __future__ import annotations

from ..settings.distributed import DistributedConfig
from ..signatures import key_bytes, new_key
from ..stores.config_records import SessionKey


def new_session_key(config: DistributedConfig, now_ms: int) -> SessionKey:
    """Return a random key; `now_ms` is in milliseconds since the epoch."""
    algorithm = config["inter.worker.key.generation.algorithm"]
    return SessionKey(new_key(algorithm, config["inter.worker.key.size"]), algorithm, now_ms)


def needs_new_key(key: SessionKey | None, config: DistributedConfig, now_ms: int) -> bool:
    """Return whether a new key is needed: the current one is missing, has expired or does not match the settings."""
    if key is None:
        return True
    algorithm = config["inter.worker.key.generation.algorithm"]
    if key.algorithm != algorithm or len(key.key) != key_bytes(algorithm, config["inter.worker.key.size"]):
        return True
    expires_ms = key_expires_ms(key, config)
    return expires_ms is not None and expires_ms <= now_ms


def key_expires_ms(key: SessionKey, config: DistributedConfig) -> int | None:
    """Return when the leader replaces a key, in milliseconds since the epoch; None if it never does."""
    ttl_ms: int = config["inter.worker.key.ttl.ms"]
    return key.created_ms + ttl_ms if ttl_ms > 0 else None
