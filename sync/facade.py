"""Make a blocking client from an asyncio client: `Facade`, and `blocking` and `on_loop` for its methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ..protocol.errors import KafkaError
from .background import BackgroundLoop, Registration, background_loop

P = ParamSpec("P")
R = TypeVar("R")


class AsyncClient(Protocol):
    """The interface that all asyncio clients have in common."""

    @property
    def is_open(self) -> bool:
        """Whether the client has been started, and `close` has not been called."""

    async def __aenter__(self) -> Any:
        """Start the client."""

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        """Close the client."""


C = TypeVar("C", bound=AsyncClient)
A = TypeVar("A")


class Facade(Generic[C]):
    """A blocking client around an asyncio client; a context manager that starts and closes the client."""

    _is_broker: ClassVar[bool] = False

    def __init__(self, client: C) -> None:
        self._client = client

    @functools.cached_property
    def _background(self) -> BackgroundLoop:
        """The background loop of the process in which the client is first used. A client may be made before a fork and
        started after it.
        """
        return background_loop()

    def __enter__(self) -> Self:
        self._start(self._client.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._close(lambda: self._client.__aexit__(kind, error, trace))
        except KafkaError:
            raise
        except BaseException as failure:  # an interrupt may arrive before the client has begun to close
            if self._client.is_open:
                self._close(functools.partial(self._client.__aexit__, type(failure), failure, None))
            raise

    def _start(self, starting: Callable[[], Coroutine[Any, Any, object]]) -> None:
        registration = Registration(self._close_at_exit, lambda: self._client.is_open, self._is_broker)
        is_started = False

        async def start() -> None:
            nonlocal is_started
            await starting()
            is_started = True
            self._background.opened(self, registration)

        try:
            self._background.run(start)
        except BaseException as error:  # an interrupt may arrive just after the client has started
            if is_started:
                self.__exit__(type(error), error, None)
            raise

    async def _close_at_exit(self) -> None:
        """Close the client when the interpreter exits, if the program has left it open."""
        await self._client.__aexit__(None, None, None)

    def _close(self, closing: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._background.close(self, closing)


def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[Facade[Any], P], R]:
    """Return a method for a facade that runs a coroutine method of its client, and waits for the result."""

    @functools.wraps(method)
    def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._background.run(lambda: method(self._client, *args, **kwargs))

    return call


def on_loop(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[Facade[Any], P], R]:
    """Return a method for a facade that calls a plain method of its client in the event loop's thread."""

    @functools.wraps(method)
    def call(self: Facade[Any], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def work() -> R:
            return method(self._client, *args, **kwargs)

        return self._background.run(work)

    return call
