"""The exceptions of connectors and of the worker, and what each one makes the worker do.

A connector raises `ConnectError` for a failure that needs a person, `RetriableError` for one that passes by itself and
`DataError` for a record that cannot be converted. The others are answers of the worker to a request: the REST
interface has one table from them to status codes.
"""

from __future__ import annotations


class ConnectError(Exception):
    """A connector or a worker cannot go on; the task or connector that raised it becomes FAILED."""


class RetriableError(ConnectError):
    """The operation failed this time; the worker repeats it, within errors.retry.timeout where that applies."""


class DataError(ConnectError):
    """A value does not fit its schema, or cannot be converted; errors.tolerance decides about its record."""


class SchemaError(DataError):
    """A schema contradicts itself."""


class ConfigValueError(ConnectError):
    """A setting has a value that cannot be; the text is Kafka's, so that tools recognise it."""

    def __init__(self, name: str, value: object, problem: str) -> None:
        super().__init__(f"Invalid value {_shown(value)} for configuration {name}: {problem}")
        self.name = name


class MissingConfigError(ConfigValueError):
    """A setting without a default is missing."""

    def __init__(self, name: str) -> None:
        ConnectError.__init__(self, f'Missing required configuration "{name}" which has no default value.')
        self.name = name


class WrongClassError(ConfigValueError):
    """A setting names a class that is a plugin of another kind, or none."""

    def __init__(self, name: str, cls: str, interface: str) -> None:
        ConnectError.__init__(self, f"Class class {cls} does not implement the {interface} interface")
        self.name = name


class IllegalTransactionRequestError(ConnectError):
    """A task asked to commit and to abort the same transaction (KIP-618)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a task asked to commit {what} and to abort it: a transaction ends in one way")


class TooManyTasksError(ConnectError):
    """A connector configures more tasks than tasks.max allows; asking it again would not help."""


class SupersededError(ConnectError):
    """A task must not start any more: its connector has other tasks by now, or another worker runs it."""


class BadRequestError(ConnectError):
    """The request is wrong in itself (400)."""


class NotFoundError(ConnectError):
    """There is no connector, task, plugin or logger of that name (404)."""


class AlreadyExistsError(ConnectError):
    """There is a connector of that name already (409)."""


class SinkConnectorError(BadRequestError):
    """A connector is a sink connector, which workers of oncelog do not run (400)."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is a sink connector, and workers of oncelog run source connectors only. Create it in a group of "
            "workers of Kafka Connect, which read the same topics."
        )


class ForbiddenError(ConnectError):
    """An internal request has a wrong signature (403)."""


class RequestTargetError(ConnectError):
    """Another worker has to answer; `url` is its address, None where it is not known."""

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url


class NotLeaderError(RequestTargetError):
    """Only the leader can do this."""

    def __init__(self, leader_url: str | None, message: str = "Only the leader can answer this request.") -> None:
        super().__init__(message, leader_url)


class RebalanceNeededError(ConnectError):
    """The group is about to rebalance, so that this worker does not know who has to answer (409)."""

    def __init__(self) -> None:
        super().__init__(
            "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config "
            "change)"
        )


class NotAssignedError(RequestTargetError):
    """Only the worker that runs the connector or task can do this."""


class ConflictError(ConnectError):
    """Something else has happened in the meantime that makes the request pointless (409)."""


class LeaderRequestError(ConnectError):
    """The leader did not do what this worker has asked for; `status` is that of its answer, None without one."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class NotReadyError(ConnectError):
    """The worker has not yet read what it needs for the answer (503)."""


def _shown(value: object) -> str:
    """Return a value as Kafka prints it in its messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value)
