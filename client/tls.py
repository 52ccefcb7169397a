"""Makes the TLS context of a client from its ssl.* settings, by the names of librdkafka and of Kafka's Java client."""

from __future__ import annotations

import ssl
from pathlib import Path

from ..auth.stores import KeyMaterial, StoreError, key_from_store, load_key, load_trusted, trusted_from_store
from ..auth.suites import SuitesError, restrict
from .config import ClientConfig
from .errors import ConfigError


def context_of(config: ClientConfig) -> ssl.SSLContext | None:
    """Return the context of a client's connections; None without TLS. Reads the named files. Raises ConfigError."""
    if config.security_protocol not in ("SSL", "SASL_SSL"):
        explicit = sorted(name for name in config.explicit if name.startswith("ssl_"))
        if explicit:
            raise ConfigError(
                explicit[0].replace("_", "."),
                "has no effect without security.protocol = SSL or SASL_SSL: set that too",
            )
        return None
    if config.ssl_context is not None:
        assert isinstance(config.ssl_context, ssl.SSLContext)
        beside = sorted(name for name in config.explicit if name.startswith("ssl_") and name != "ssl_context")
        if beside:
            raise ConfigError(beside[0].replace("_", "."), "has no effect together with ssl_context: give one of them")
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
    return bool(config.ssl_ca_location or config.ssl_truststore_location)


def _load_trusted(context: ssl.SSLContext, config: ClientConfig) -> None:
    if config.ssl_ca_location and config.ssl_truststore_location:
        raise ConfigError("ssl.truststore.location", "means the same as ssl.ca.location: give one of them")
    setting = "ssl.ca.location" if config.ssl_ca_location else "ssl.truststore.location"
    try:
        if config.ssl_ca_location:
            load_trusted(context, trusted_from_store("PEM", Path(config.ssl_ca_location), ""))
        elif config.ssl_truststore_location:
            path = Path(config.ssl_truststore_location)
            load_trusted(context, trusted_from_store(config.ssl_truststore_type, path, config.ssl_truststore_password))
    except StoreError as error:
        raise ConfigError(setting, str(error)) from error


def _load_key(context: ssl.SSLContext, config: ClientConfig) -> None:
    certificate, key = config.ssl_certificate_location, config.ssl_key_location
    if config.ssl_keystore_location and (certificate or key):
        raise ConfigError("ssl.keystore.location", "means the same as ssl.certificate.location: give one of them")
    if bool(certificate) != bool(key):
        missing = "ssl.key.location" if certificate else "ssl.certificate.location"
        raise ConfigError(missing, "is missing: a certificate and its private key are given together")
    setting = "ssl.keystore.location" if config.ssl_keystore_location else "ssl.certificate.location"
    try:
        if config.ssl_keystore_location:
            path = Path(config.ssl_keystore_location)
            load_key(
                context,
                key_from_store(config.ssl_keystore_type, path, config.ssl_keystore_password, config.ssl_key_password),
            )
        elif certificate:
            parts = [key_from_store("PEM", Path(file), "", config.ssl_key_password) for file in (key, certificate)]
            load_key(context, KeyMaterial("\n".join(part.pem for part in parts), config.ssl_key_password))
    except StoreError as error:
        raise ConfigError(setting, str(error)) from error
