"""Start and stop all listeners of the broker together, and tell clients the address of each.

This module also keeps the TLS context of each TLS listener. A thread examines the listener's key and certificate files
every `ssl.reload.interval.ms`; when one has changed, later handshakes use a new context. If the new files cannot be
used, the reason is logged, and the old context stays in use.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...auth.principal import Principal
from ...auth.watched_files import WatchedFiles
from ...settings import ConfigError
from ..api.connection_info import ConnectionInfo
from ..config import BrokerConfig
from ..dispatcher import Dispatcher
from ..listener_config import ListenerConfig
from ..observability.audit import AuditLog
from ..quotas.client_quotas import ClientQuotas
from ..system.ports import Lane, Threads
from .listener import Listener
from .shared_limits import SharedLimits

if TYPE_CHECKING:
    from ..security.login_checks import LoginChecks
    from ..security.mechanisms import ListenerLogins
    from ..security.scram import ScramUsers, TokenLogins
    from ..security.tls import ListenerTls


class ListenError(RuntimeError):
    """The error raised if an address cannot be bound; its message states the reason and the remedy."""


class Listeners:
    """The broker's listeners, in the order of the setting `listeners`."""

    def __init__(
        self,
        config: BrokerConfig,
        dispatcher: Dispatcher,
        threads: Threads,
        users: ScramUsers,
        log: Any,
        audit: AuditLog,
        quotas: ClientQuotas,
        tokens: TokenLogins | None = None,
    ) -> None:
        self._config = config
        self._users = users
        self._tokens = tokens
        self._dispatcher = dispatcher
        self._threads = threads
        self._log = log
        self._audit = audit
        self._limits = SharedLimits(config, quotas)
        self._rows = {row.name: row for row in config.read_listeners()}
        self._open: dict[str, Listener] = {}
        self._contexts: list[WatchedContext] = []
        self._logins: list[ListenerLogins] = []
        self._checks: LoginChecks | None = None

    async def bind(self) -> None:
        """Read the files of all listeners and bind their addresses. If one listener fails, release all addresses.

        Clients can connect only after `accept`, when every address is known. Raises ListenError if an address cannot be
        bound, and ConfigError if a setting or a file of TLS or SASL cannot be used.
        """
        try:
            for row in self._rows.values():
                self._open[row.name] = listener = await self._prepare(row)
                with _explained(row):
                    listener.bind()
        except BaseException:
            self.stop_accepting()
            raise

    async def accept(self) -> None:
        """Accept connections on all listeners. Raises ListenError."""
        for row in self._rows.values():
            with _explained(row):
                await self._open[row.name].accept()

    async def _prepare(self, row: ListenerConfig) -> Listener:
        context = None
        if row.protocol.uses_tls:
            from ..security.tls import ListenerTls

            context = WatchedContext(ListenerTls(row, self._config.of_listener(row.name)), self._threads, self._log)
            await context.start(self._config.ssl_reload_interval_ms / 1000)
            self._contexts.append(context)
        logins = None
        if row.protocol.uses_sasl:
            from ..security.mechanisms import ListenerLogins

            settings = ListenerLogins(row, self._config.of_listener(row.name))
            self._logins.append(settings)
            checks = self._login_checks()
            logins = await settings.start(self._threads, checks, self._users, self._log, self._tokens)
        return Listener(row, self._config, self._dispatcher, self._log, self._limits, self._audit, context, logins)

    def _login_checks(self) -> LoginChecks:
        """Return the checks of passwords and tokens, which all listeners with SASL share."""
        if self._checks is None:
            from ..security.login_checks import LoginChecks

            config = self._config
            self._checks = LoginChecks(
                self._threads,
                config.sasl_server_max_waiting_logins,
                config.sasl_server_max_waiting_logins_per_ip,
            )
        return self._checks

    @property
    def first(self) -> Listener:
        """The first listener in the setting `listeners`."""
        return next(iter(self._open.values()))

    @property
    def addresses(self) -> list[str]:
        """The bound addresses, each as NAME://HOST:PORT."""
        return [f"{listener.name}://{listener.host or '*'}:{listener.port}" for listener in self._open.values()]

    def named(self, name: str) -> Listener:
        """Return the open listener of that name. Raises KeyError."""
        return self._open[name]

    def endpoint(self, connection: ConnectionInfo | None) -> tuple[str, int]:
        """Return the (host, port) to which the client of `connection` should connect.

        Without a connection, return those of the first listener.
        """
        name = self.first.name if connection is None else connection.listener
        row, port = self._rows[name], self._open[name].port
        if row.advertised is not None:
            host, advertised_port = row.advertised
            return host, advertised_port or port
        if not row.binds_all:
            return row.host, port
        # The listener is bound to all interfaces. The client can reach the address to which it has connected.
        return connection.local_address[0].removeprefix("::ffff:") if connection is not None else "127.0.0.1", port

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections stay open."""
        for context in self._contexts:
            context.stop()
        for logins in self._logins:
            logins.stop()
        for listener in self._open.values():
            listener.stop_accepting()
        self._limits.stop()

    def limits_changed(self) -> None:
        """Apply the configuration's new limits on connections and on new connections per second."""
        self._limits.changed()
        for listener in self._open.values():
            listener.limits_changed()

    def drain(self) -> None:
        """Stop executing requests; those that are already being executed are still answered."""
        for listener in self._open.values():
            listener.drain()

    async def finish(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` seconds for the requests being executed, then close all connections."""
        await asyncio.gather(*(listener.finish(timeout_s) for listener in self._open.values()))


@contextmanager
def _explained(row: ListenerConfig) -> Iterator[None]:
    """Raise ListenError in place of an OSError or UnicodeError, with the listener's address."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        why = why_not_bound(error, "listeners")
        raise ListenError(f"Cannot listen on {row.host or '*'}:{row.port}: {why}.") from error


def why_not_bound(error: OSError | UnicodeError, setting: str) -> str:
    """Return why an address of the setting `setting` cannot be bound, and the remedy, without the last full stop."""
    if isinstance(error, UnicodeError):
        return f"The host is not a valid name. Correct the host in `{setting}`"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        remedy = f"Use a host name or an IP address of this machine in `{setting}`, or no host for all interfaces"
    elif error.errno == errno.EACCES:
        remedy = f"Let the broker's user bind the port, or use a port from 1024 on in `{setting}`"
    elif error.errno == errno.EADDRINUSE:
        remedy = f"Stop the program that uses the port, or change `{setting}`"
    else:
        remedy = f"Change `{setting}`"
    return f"{error.strerror or error}. {remedy}"


class WatchedContext:
    """The TLS side of a listener; its context is created again when one of its files has changed."""

    def __init__(self, tls: ListenerTls, threads: Threads, log: Any) -> None:
        self._tls = tls
        self._threads = threads
        self._log = log.bind(listener=tls.listener.name)
        self._context: ssl.SSLContext | None = None
        self._files = WatchedFiles(tls.paths, self._make, ConfigError)
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def get(self) -> ssl.SSLContext:
        """Return the context for a handshake that begins now."""
        assert self._context is not None, "started"
        return self._context

    def principal(self, connection: Any) -> Principal | None:
        """Return the principal of a client after its handshake, or None if no mapping rule matches its subject."""
        return self._tls.principal(connection)

    async def start(self, interval_s: float) -> None:
        """Read the files, then examine them every `interval_s` seconds (0: never). Raises ConfigError."""
        await self._threads.run(Lane.READ, self._files.read)
        self._schedule(interval_s)

    def stop(self) -> None:
        """Stop examining the files."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _make(self) -> None:
        self._context = self._tls.context()

    def _schedule(self, interval_s: float) -> None:
        if interval_s > 0 and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(interval_s, self._examine, interval_s)

    def _examine(self, interval_s: float) -> None:
        def examined(done: asyncio.Future[None]) -> None:
            if (error := done.exception()) is not None:
                self._log.error("tls_files_not_examined", exc_info=error)
            self._schedule(interval_s)

        self._threads.run(Lane.READ, self._load_if_changed).add_done_callback(examined)

    def _load_if_changed(self) -> None:
        """Make a new context if a file has changed. Runs in a thread."""
        if self._files.read_if_changed(self._report):
            self._log.info("tls_files_reloaded", files=self._files.paths)

    def _report(self, error: Exception) -> None:
        remedy = "correct the file; until then the broker uses the former key and certificates"
        self._log.error("tls_files_unusable", why=str(error), remedy=remedy)
