"""Reads the sasl.* settings of a client: those of librdkafka, of Kafka's Java client and of aiokafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ...auth.mechanism_names import OAUTHBEARER, PLAIN, SCRAM_NUMBERS
from ..config import ClientConfig
from ..errors import ConfigError

if TYPE_CHECKING:
    from .mechanisms import Mechanism

_MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
_USERNAME: Final = ("sasl.username", "sasl.plain.username")
_PASSWORD: Final = ("sasl.password", "sasl.plain.password")
_JAAS: Final = "sasl.jaas.config"
_CLIENT_ID: Final = "sasl.oauthbearer.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.secret"  # noqa: S105 - a name
_SCOPE: Final = "sasl.oauthbearer.scope"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_PROVIDER: Final = "sasl.oauth.token.provider"
_OF_JAAS: Final = (*_USERNAME, *_PASSWORD, _CLIENT_ID, _CLIENT_SECRET, _SCOPE, _EXTENSIONS)
"""Settings that cannot be combined with sasl.jaas.config, because its login module has options with the same meaning.
"""

_HTTP: Final = re.compile(r"https?://[^\s/@]+(/\S*)?", re.IGNORECASE)
_EXTENSION: Final = re.compile(r"\s*(?!auth=)([A-Za-z]+)=([\x20-\x7e\t\r\n]+)")
"""An extension of the token (RFC 7628)."""

_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(SCRAM_NUMBERS, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
}
"""The Java login module for each mechanism."""


def login_of(config: ClientConfig) -> Mechanism | None:
    """Return the mechanism with which a client logs in, or None if it does not use SASL. Raises ConfigError."""
    if not config.security_protocol.startswith("SASL_"):
        explicit = sorted(name for name in config.explicit if name.startswith("sasl."))
        if explicit:
            raise ConfigError(
                explicit[0],
                "has no effect without security.protocol = SASL_SSL or SASL_PLAINTEXT: set that too",
            )
        return None
    from ...auth.scram import TOKEN_EXTENSION  # slow to import, and not needed without SASL
    from .mechanisms import Plain, Scram

    mechanism = _one_of(config, _MECHANISM)
    if not mechanism:
        raise ConfigError("sasl.mechanism", "is missing: security.protocol needs it", "security.protocol")
    _check_unused(config, mechanism)
    options = _jaas_options(config, mechanism)
    if mechanism == OAUTHBEARER:
        return _bearer(config, options or {})
    username, password = _credentials(config, mechanism, options)
    if mechanism == PLAIN:
        return Plain(username, password)
    with_token = options is not None and options.get(TOKEN_EXTENSION, "").lower() == "true"
    return Scram(mechanism, username, password, {TOKEN_EXTENSION: "true"} if with_token else {})


def _check_unused(config: ClientConfig, mechanism: str) -> None:
    """Raise ConfigError for a setting that belongs to another mechanism."""
    for name in sorted(config.explicit - {*_MECHANISM, _JAAS}):
        if name.startswith("sasl.") and name.startswith("sasl.oauth") != (mechanism == OAUTHBEARER):
            problem = f"has no effect with sasl.mechanism = {mechanism}: leave it out"
            raise ConfigError(name, problem, _MECHANISM[0])


def _value(config: ClientConfig, name: str) -> str:
    value: str = config.get(name)
    return value


def _one_of(config: ClientConfig, names: tuple[str, ...]) -> str:
    """Return the value of the one setting in `names` that is given, or "" if none of them is given."""
    present = [name for name in names if _value(config, name)]
    if len(present) > 1:
        raise ConfigError(present[1], f"means the same as {present[0]}: give only one of them", present[0])
    return _value(config, present[0]) if present else ""


def _jaas_options(config: ClientConfig, mechanism: str) -> Mapping[str, str] | None:
    """Return the options of the login module in sasl.jaas.config, or None if that setting is not given."""
    if not config.sasl_jaas_config:
        return None
    for name in _OF_JAAS:
        if _value(config, name):
            raise ConfigError(name, f"means the same as an option in {_JAAS}: give only one of them", _JAAS)
    from ...auth.jaas import parse_jaas

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


def _bearer(config: ClientConfig, options: Mapping[str, str]) -> Mechanism:
    from .mechanisms import OAuthBearer
    from .tokens import ClientCredentials, TokenSource, provided  # imports HTTP, which other clients do not need

    provider = config.sasl_oauth_token_provider
    url = config.sasl_oauthbearer_token_endpoint_url
    extensions = _extensions(config, options)
    if provider is not None:
        if config.sasl_oauthbearer_method == "oidc":
            raise ConfigError(_PROVIDER, "has no effect with sasl.oauthbearer.method=oidc: give only one of them")
        if url:
            raise ConfigError(_URL, f"has no effect together with {_PROVIDER}: give only one of them", _PROVIDER)
        return OAuthBearer(TokenSource(lambda: provided(provider)), extensions)
    if not url:
        other = "" if config.sasl_oauthbearer_method == "oidc" else f", or {_PROVIDER}"
        raise ConfigError(_URL, f"is missing: OAUTHBEARER needs it{other}", "sasl.mechanism")
    if not _HTTP.fullmatch(url):
        raise ConfigError(_URL, "is not an address that begins with https:// or http://, without a user name")
    client_id = config.sasl_oauthbearer_client_id or options.get("clientId", "")
    secret = config.sasl_oauthbearer_client_secret or options.get("clientSecret", "")
    for name, value in ((_CLIENT_ID, client_id), (_CLIENT_SECRET, secret)):
        if not value:
            raise ConfigError(name, f"is missing: {_URL} needs it", _URL)
    scope = config.sasl_oauthbearer_scope or options.get("scope", "")
    credentials = ClientCredentials(url, client_id, secret, scope, config.socket_connection_setup_timeout_ms / 1000)
    return OAuthBearer(TokenSource(credentials.fetch), extensions)


def _extensions(config: ClientConfig, options: Mapping[str, str]) -> dict[str, str]:
    """Return the extensions of sasl.oauthbearer.extensions, or of options such as extension_logicalCluster."""
    prefix = "extension_"
    pairs = [f"{name.removeprefix(prefix)}={value}" for name, value in options.items() if name.startswith(prefix)]
    extensions = {}
    for pair in (*config.sasl_oauthbearer_extensions, *pairs):
        parsed = _EXTENSION.fullmatch(pair)
        if parsed is None:
            raise ConfigError(_JAAS if pairs else _EXTENSIONS, "has an extension that is not of the form name=value")
        extensions[parsed[1]] = parsed[2]
    return extensions


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
