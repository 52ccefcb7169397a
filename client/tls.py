"""Makes the TLS context of a client from the ssl.* settings of librdkafka and of Kafka's Java client."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..auth.stores import StoreError, key_from_pem, key_from_store, load_key, load_trusted, trusted_from_store
from ..auth.suites import SuitesError, restrict
from .config import ClientConfig
from .errors import ConfigError

_TRUSTED: Final = ("ssl.ca.location", "ssl.ca.pem", "ssl.truststore.location", "ssl.truststore.certificates")
_CHAIN: Final = (
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.location",
)
_KEY: Final = ("ssl.key.location", "ssl.key.pem", "ssl.keystore.key", "ssl.keystore.location")
"""_TRUSTED, _CHAIN and _KEY: the settings for trusted certificates, the client's certificate chain, and the client's
key. The settings in each tuple exclude each other.

The settings at the same index of _CHAIN and _KEY belong together.
"""


def context_of(config: ClientConfig) -> ssl.SSLContext | None:
    """Return the context of a client's connections, or None without TLS. Reads the named files. Raises ConfigError."""
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        explicit = sorted(name for name in config.explicit if name.startswith("ssl."))
        if explicit:
            raise ConfigError(
                explicit[0],
                "has no effect without security.protocol = SSL or SASL_SSL: set that too",
            )
        return None
    if config.ssl_context is not None:
        assert isinstance(config.ssl_context, ssl.SSLContext)
        beside = sorted(name for name in config.explicit if name.startswith("ssl.") and name != "ssl.context")
        if beside:
            raise ConfigError(beside[0], "has no effect together with ssl_context: give only one of them")
        return config.ssl_context
    context = ssl.create_default_context() if not _trusts(config) else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    try:
        restrict(context, config.ssl_cipher_suites, config.ssl_enabled_protocols)
    except SuitesError as error:
        raise ConfigError(error.setting, str(error)) from None
    _load_trusted(context, config)
    _load_key(context, config)
    return context


def _trusts(config: ClientConfig) -> bool:
    return bool(_given(config, _TRUSTED))


def _given(config: ClientConfig, settings: Sequence[str]) -> str:
    """Return the name in `settings` that has a value, or "" if none has one. Raises ConfigError if several have one."""
    given = [setting for setting in settings if _value(config, setting)]
    if len(given) > 1:
        raise ConfigError(given[1], f"means the same as {given[0]}: give only one of them")
    return given[0] if given else ""


def _value(config: ClientConfig, setting: str) -> str:
    value: str = config.get(setting)
    return value


def _load_trusted(context: ssl.SSLContext, config: ClientConfig) -> None:
    setting = _given(config, _TRUSTED)
    value = _value(config, setting) if setting else ""
    try:
        if setting == "ssl.truststore.location":
            value = trusted_from_store(config.ssl_truststore_type, Path(value), config.ssl_truststore_password)
        elif setting == "ssl.ca.location":
            value = trusted_from_store("PEM", Path(value), "")
        if setting:
            load_trusted(context, value)
    except StoreError as error:
        raise ConfigError(setting, str(error)) from error


def _load_key(context: ssl.SSLContext, config: ClientConfig) -> None:
    chain, key = _given(config, _CHAIN), _given(config, _KEY)
    if not (chain or key):
        return
    if not (chain and key):
        missing = _KEY[_CHAIN.index(chain)] if chain else _CHAIN[_KEY.index(key)]
        raise ConfigError(missing, "is missing: a certificate and its private key must be given together")
    try:
        if chain == key:
            path = Path(config.ssl_keystore_location)
            store = config.ssl_keystore_type, path, config.ssl_keystore_password, config.ssl_key_password
            load_key(context, key_from_store(*store))
            return
        pem = "\n".join(
            key_from_store("PEM", Path(_value(config, setting)), "", "").pem
            if setting.endswith(".location")
            else _value(config, setting)
            for setting in (key, chain)
        )
        load_key(context, key_from_pem(pem, config.ssl_key_password))
    except StoreError as error:
        raise ConfigError(chain, str(error)) from error
