"""Reads the sasl.* settings of a client, by the names of librdkafka, of Kafka's Java client and of aiokafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...auth.jaas import parse_jaas
from ...auth.scram import SCRAM_MECHANISMS, TOKEN_EXTENSION
from ..config import ClientConfig
from ..errors import ConfigError
from .mechanisms import Mechanism, Plain, Scram

_MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
_USERNAME: Final = ("sasl.username", "sasl.plain.username")
_PASSWORD: Final = ("sasl.password", "sasl.plain.password")
_JAAS: Final = "sasl.jaas.config"
_MODULES: Final = {"PLAIN": "PlainLoginModule", **dict.fromkeys(SCRAM_MECHANISMS, "ScramLoginModule")}
"""Java's login modules by mechanism."""


def login_of(config: ClientConfig) -> Mechanism | None:
    """Return how a client logs in; None without SASL. Raises ConfigError."""
    if not config.security_protocol.startswith("SASL_"):
        given = sorted(name for name in config.explicit if name.startswith("sasl_"))
        if given:
            raise ConfigError(
                given[0].replace("_", "."),
                "has no effect without security.protocol = SASL_SSL or SASL_PLAINTEXT: set that too",
            )
        return None
    mechanism = _one_of(config, _MECHANISM)
    if not mechanism:
        raise ConfigError("sasl.mechanism", "is missing: security.protocol needs it", "security.protocol")
    options = _jaas_options(config, mechanism)
    username, password = _credentials(config, mechanism, options)
    if mechanism == "PLAIN":
        return Plain(username, password)
    with_token = options is not None and options.get(TOKEN_EXTENSION, "").lower() == "true"
    return Scram(mechanism, username, password, {TOKEN_EXTENSION: "true"} if with_token else {})


def _value(config: ClientConfig, name: str) -> str:
    value: str = getattr(config, name.replace(".", "_"))
    return value


def _one_of(config: ClientConfig, names: tuple[str, ...]) -> str:
    """Return the value of the one setting of `names` that is given, "" if none is."""
    given = [name for name in names if _value(config, name)]
    if len(given) > 1:
        raise ConfigError(given[1], f"means the same as {given[0]}: give one of them", given[0])
    return _value(config, given[0]) if given else ""


def _jaas_options(config: ClientConfig, mechanism: str) -> Mapping[str, str] | None:
    """Return the options of the login module in sasl.jaas.config, None without that setting."""
    if not config.sasl_jaas_config:
        return None
    for name in (*_USERNAME, *_PASSWORD):
        if _value(config, name):
            raise ConfigError(name, f"means the same as an option in {_JAAS}: give one of them", _JAAS)
    try:
        entry = parse_jaas(config.sasl_jaas_config)
    except ValueError as error:
        raise ConfigError(_JAAS, str(error)) from None
    if entry.module != _MODULES[mechanism]:
        raise ConfigError(
            _JAAS,
            f"names {entry.module}, but {mechanism} needs {_MODULES[mechanism]}: change one of them",
            _MECHANISM[0],
        )
    return entry.options


def _credentials(config: ClientConfig, mechanism: str, options: Mapping[str, str] | None) -> tuple[str, str]:
    if options is None:
        names = _USERNAME[0], _PASSWORD[0]
        values = _one_of(config, _USERNAME), _one_of(config, _PASSWORD)
    else:
        names = _JAAS, _JAAS
        values = options.get("username", ""), options.get("password", "")
    for name, what, value in zip(names, ("user name", "password"), values, strict=True):
        if not value:
            problem = "is missing" if options is None else "has no such option"
            raise ConfigError(name, f"{problem}: {mechanism} needs a {what}")
        if "\0" in value:
            raise ConfigError(name, f"has a {what} with the character NUL, which {mechanism} cannot carry")
    return values
