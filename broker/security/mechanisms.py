"""Make the rules for the logins of a SASL listener from its `sasl.*` settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from ...auth.scram import SCRAM_MECHANISMS, ScramDecoys
from ..listener_config import ListenerConfig
from ..ports import Threads
from ..settings import ConfigError
from .login import LoginRules, Mechanism
from .plain import JaasUsers, PlainExchange, PlainUsers, UserFile
from .scram import FindCredential, ScramExchange
from .settings import PLAIN, ListenerSettings

_JAAS: Final = "plain.sasl.jaas.config"
_FILE: Final = "plain.users.location"


class ListenerLogins:
    """The SASL settings of one listener, from which its `LoginRules` are made."""

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
        if PLAIN in self._enabled:
            self._check_plain()

    def _check_plain(self) -> None:
        text = self._settings.get(_JAAS)
        if not text and not self._settings.get(_FILE):
            raise ConfigError(
                _FILE,
                f"is not set, but the listener {self._listener.name} enables PLAIN. Name a file with a line for each"
                f" user, which `oncelog user hash NAME` makes, or set {_JAAS}",
            )
        if text:
            try:
                self._jaas = JaasUsers(text)
            except ValueError as error:
                raise ConfigError(_JAAS, str(error)) from None

    def rules(self, threads: Threads, find: FindCredential) -> LoginRules:
        """Return the rules. Blocks to read files. Raises ConfigError that names the setting and the file."""
        decoys = ScramDecoys()
        made: dict[str, Callable[[], Mechanism]] = {}
        for name in self._enabled:
            if name == PLAIN:
                made[name] = partial(PlainExchange, self._plain_users(), threads)
            else:
                made[name] = partial(ScramExchange, SCRAM_MECHANISMS[name], find, decoys)
        return LoginRules(
            made,
            self._settings.get("connections.max.reauth.ms"),
            self._settings.get("connection.failed.authentication.delay.ms") / 1000,
        )

    def _plain_users(self) -> Callable[[str, str], bool]:
        users: list[PlainUsers] = [] if self._jaas is None else [self._jaas]
        if location := self._settings.get(_FILE):
            file = UserFile(Path(location))
            try:
                file.load()
            except (OSError, ValueError) as error:
                raise ConfigError(_FILE, str(error)) from None
            users.append(file)
        return lambda name, password: any(each.verify(name, password) for each in users)
