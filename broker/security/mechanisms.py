"""Derive a SASL listener's login rules from its `sasl.*` settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ...auth.mechanism_names import OAUTHBEARER, PLAIN
from ...auth.remembered_passwords import RememberedPasswords
from ...auth.scram_credentials import SCRAM_MECHANISMS, ScramDecoys
from ...auth.user_file import UserFile
from ...settings import ConfigError
from ..listener_config import ListenerConfig
from ..system.ports import Lane, Threads
from .login import LoginRules, Mechanism
from .login_checks import LoginChecks
from .plain import AllUsers, JaasUsers, PlainExchange, PlainUsers
from .scram import ScramExchange, ScramUsers, TokenLogins
from .settings import ListenerSettings

if TYPE_CHECKING:  # imported at its first use, because most listeners have no tokens
    from .token_keys import TokenKeys

_JAAS: Final = "plain.sasl.jaas.config"
_FILE: Final = "plain.users.location"
_KEYS: Final = "sasl.oauthbearer.jwks.endpoint.url"


class ListenerLogins:
    """The SASL settings of one listener, from which `start` makes its `LoginRules`."""

    def __init__(self, listener: ListenerConfig, settings: ListenerSettings) -> None:
        """Check the settings without reading files. Raises ConfigError."""
        self._listener, self._settings = listener, settings
        self._enabled: list[str] = settings.get("sasl.enabled.mechanisms")
        if not self._enabled:
            raise ConfigError(
                "sasl.enabled.mechanisms",
                f"is empty, but the listener {listener.name} uses {listener.protocol}. Name at least one mechanism",
            )
        self._jaas: JaasUsers | None = None
        self._keys: TokenKeys | None = None
        if PLAIN in self._enabled:
            self._check_plain()
        if OAUTHBEARER in self._enabled:
            self._check_oauth()

    def _check_plain(self) -> None:
        text = self._settings.get(_JAAS)
        if not text and not self._settings.get(_FILE):
            raise ConfigError(
                _FILE,
                f"is not set, but the listener {self._listener.name} enables PLAIN. Name a file with a line for each"
                f" user, as `oncelog user hash NAME` prints it, or set {_JAAS}",
            )
        if text:
            try:
                self._jaas = JaasUsers(text)
            except ValueError as error:
                raise ConfigError(_JAAS, str(error)) from None

    def _check_oauth(self) -> None:
        if not self._settings.get(_KEYS):
            raise ConfigError(
                _KEYS,
                f"is not set, but the listener {self._listener.name} enables OAUTHBEARER. Set the address of the"
                " identity provider's public keys",
            )

    async def start(
        self,
        threads: Threads,
        checks: LoginChecks,
        users: ScramUsers,
        log: Any,
        tokens: TokenLogins | None = None,
    ) -> LoginRules:
        """Read files and keys, and return the rules. Raises a ConfigError that names the setting and the file.

        `tokens` is None if delegation tokens are off.
        """
        decoys = ScramDecoys()
        made: dict[str, Callable[[str], Mechanism]] = {}
        for name in self._enabled:
            if name == PLAIN:
                made[name] = partial(PlainExchange, await threads.run(Lane.LOGIN, self._plain_users), checks)
            elif name == OAUTHBEARER:
                made[name] = await self._oauth(threads, checks, log)
            else:
                made[name] = _for_any_host(partial(ScramExchange, SCRAM_MECHANISMS[name], users, decoys, tokens))
        return LoginRules(
            made,
            self._settings.get("connections.max.reauth.ms"),
            self._settings.get("connection.failed.authentication.delay.ms") / 1000,
        )

    def stop(self) -> None:
        """Stop reading keys."""
        if self._keys is not None:
            self._keys.stop()

    async def _oauth(self, threads: Threads, checks: LoginChecks, log: Any) -> Callable[[str], Mechanism]:
        get = self._settings.get
        try:
            import jwt  # noqa: F401

            from .oauth import OAuthExchange, TokenRules
            from .token_keys import KeysError, TokenKeys
        except ImportError:
            raise ConfigError(
                "sasl.enabled.mechanisms",
                "OAUTHBEARER needs packages that are not installed: pip install 'oncelog[security]'",
            ) from None
        refresh_s = get("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000
        self._keys = TokenKeys(get(_KEYS), refresh_s, threads, log)
        try:
            await self._keys.start()
        except KeysError as error:
            raise ConfigError(_KEYS, str(error)) from None
        rules = TokenRules(
            get("sasl.oauthbearer.expected.issuer"),
            get("sasl.oauthbearer.expected.audience"),
            get("sasl.oauthbearer.clock.skew.seconds"),
            get("sasl.oauthbearer.sub.claim.name"),
        )
        return partial(OAuthExchange, self._keys, rules, checks)

    def _plain_users(self) -> PlainUsers:
        users: list[PlainUsers] = [] if self._jaas is None else [self._jaas]
        if location := self._settings.get(_FILE):
            file = UserFile(Path(location))
            try:
                file.load()
            except (OSError, ValueError) as error:
                raise ConfigError(_FILE, str(error)) from None
            users.append(RememberedPasswords(file))
        return AllUsers(users)


def _for_any_host(make: Callable[[], Mechanism]) -> Callable[[str], Mechanism]:
    """Return a function that makes an exchange for any client address."""
    return lambda _: make()
