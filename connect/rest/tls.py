"""`RestTls`: the TLS contexts of a worker's REST interface, which are replaced when their files change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ...auth.stores import StoreError, key_from_store, load_key, load_trusted, trusted_from_store
from ...auth.suites import SuitesError, restrict
from ...auth.watched_files import WatchedFiles
from ..errors import ConfigValueError
from ..settings.rest import RestListeners

log = logging.getLogger(__name__)

_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ReloadedContext(ssl.SSLContext):
    """A server's TLS context that can be replaced while the server runs: new connections use `current`."""

    current: ssl.SSLContext

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """Return the TLS object of a new connection."""
        return self.current.wrap_bio(incoming, outgoing, server_side, server_hostname, session)


class RestTls:
    """The contexts of one worker: `server` for its listeners, and `client` for its requests to other workers."""

    def __init__(self, settings: RestListeners) -> None:
        """Read the keys and certificates. Raises ConfigValueError, for example for a file that cannot be used."""
        assert settings.ssl is not None, "a listener uses TLS"
        self._settings, self._ssl = settings, settings.ssl
        self.server = ReloadedContext(ssl.PROTOCOL_TLS_SERVER)
        self.client: ssl.SSLContext
        paths = {self._ssl["ssl.keystore.location"], self._ssl["ssl.truststore.location"]} - {"", None}
        self._files = WatchedFiles(paths, self._make, ConfigValueError)
        self._watching: asyncio.Task[None] | None = None
        self._files.read()

    def watch(self, interval_s: float) -> None:
        """Examine the files every `interval_s` seconds until `stop`; if `interval_s` is 0, never examine them."""
        if interval_s > 0:
            self._watching = asyncio.create_task(self._watch(interval_s), name="TLS files of the REST interface")

    async def stop(self) -> None:
        """Stop examining the files."""
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching

    async def _watch(self, interval_s: float) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await asyncio.to_thread(self._load_if_changed)

    def _load_if_changed(self) -> None:
        if self._files.read_if_changed(_report):
            log.info("the REST interface uses new keys and certificates: %s", ", ".join(self._files.paths))

    def _make(self) -> None:
        """Create the TLS contexts of the server and the client from the files."""
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
        server.verify_mode = _VERIFY[self._ssl["ssl.client.auth"]]
        trusts = bool(self._ssl["ssl.truststore.location"])
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if trusts else ssl.create_default_context()
        client.check_hostname = self._ssl["ssl.endpoint.identification.algorithm"] == "https"
        for context in (server, client):
            self._fill(context)
        self.server.current, self.client = server, client

    def _fill(self, context: ssl.SSLContext) -> None:
        values: Mapping[str, Any] = self._ssl
        setting, file = "ssl.keystore.location", values["ssl.keystore.location"]
        try:
            restrict(context, values["ssl.cipher.suites"], values["ssl.enabled.protocols"])
            passwords = values["ssl.keystore.password"].value, values["ssl.key.password"].value
            load_key(context, key_from_store(values["ssl.keystore.type"], Path(file), *passwords))
            if values["ssl.truststore.location"]:
                setting, file = "ssl.truststore.location", values["ssl.truststore.location"]
                password = values["ssl.truststore.password"].value
                load_trusted(context, trusted_from_store(values["ssl.truststore.type"], Path(file), password))
        except SuitesError as error:
            raise ConfigValueError(self._settings.name(error.setting), "[hidden]", str(error)) from None
        except StoreError as error:
            raise ConfigValueError(self._settings.name(setting), file, str(error)) from None


def _report(error: Exception) -> None:
    log.error("the REST interface continues with the former key and certificates: %s", error)
