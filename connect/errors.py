"""The exceptions of connectors and of the worker, and how the worker reacts to each.

A connector raises `ConnectError` for a failure that a person must resolve, `RetriableError` for a temporary failure,
and `DataError` for a record that cannot be converted. Several other exceptions say why a request is refused; the table
in rest/errors.py maps them to HTTP status codes.
"""

from __future__ import annotations


class ConnectError(Exception):
    """A failure that the connector or worker cannot recover from; the connector or task becomes FAILED."""


class RetriableError(ConnectError):
    """A temporary failure; the worker repeats the operation, within errors.retry.timeout where that setting applies."""


class DataError(ConnectError):
    """A value does not fit its schema or cannot be converted; errors.tolerance decides whether to skip its record."""


class SchemaError(DataError):
    """A schema is inconsistent."""


class ConfigValueError(ConnectError):
    """A setting has an invalid value. The message has Kafka's wording, so that tools recognise it."""

    def __init__(self, name: str, value: object, problem: str) -> None:
        super().__init__(f"Invalid value {_shown(value)} for configuration {name}: {problem}")
        self.name = name


class MissingConfigError(ConfigValueError):
    """A required setting, which has no default, is missing."""

    def __init__(self, name: str) -> None:
        ConnectError.__init__(self, f'Missing required configuration "{name}" which has no default value.')
        self.name = name


class IncompleteConfigError(ConfigValueError):
    """A setting has no effect without another setting, which is missing."""

    def __init__(self, name: str, problem: str) -> None:
        ConnectError.__init__(self, problem)
        self.name = name


class WrongClassError(ConfigValueError):
    """A setting names a class that does not implement the required plugin interface.

    The message is Kafka Connect's, including the words "Class class".
    """

    def __init__(self, name: str, cls: str, interface: str) -> None:
        ConnectError.__init__(self, f"Class class {cls} does not implement the {interface} interface")
        self.name = name


class IllegalTransactionRequestError(ConnectError):
    """A task requested both a commit and an abort of the same transaction (KIP-618)."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the task requested both a commit and an abort of {what}: request only one of them")


class TooManyTasksError(ConnectError):
    """A connector returned more task configurations than tasks.max allows; the worker does not ask for them again."""


class SupersededError(ConnectError):
    """A task must not start: its connector has newer task settings, or the task was stopped, removed or revoked."""


class ProducerLostError(ConnectError):
    """A task cannot use its producer any more. A new producer can continue after the last committed record."""


class UnknownCommitError(ProducerLostError):
    """It is unknown whether the last transaction of a task was committed. The committed offsets show whether it was."""


class FencedError(ProducerLostError):
    """The producer of a task was fenced: another instance of the task has started, or a transaction took too long."""


class BadRequestError(ConnectError):
    """The request itself is invalid (400)."""


class NotFoundError(ConnectError):
    """No connector, task, plugin or logger has the requested name (404)."""


class AlreadyExistsError(ConnectError):
    """A connector with the requested name already exists (409)."""


class SinkConnectorError(BadRequestError):
    """The class is a sink connector, which oncelog's workers do not run (400)."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is a sink connector, and workers of oncelog run source connectors only. Create it in a group of "
            "workers of Kafka Connect, which read the same topics."
        )


class ForbiddenError(ConnectError):
    """The worker's settings do not allow the request, or an internal request has an invalid signature (403)."""


class RequestTargetError(ConnectError):
    """Another worker must answer the request; `url` is its address, or None if the address is unknown."""

    def __init__(self, message: str, url: str | None) -> None:
        super().__init__(message)
        self.url = url


class NotLeaderError(RequestTargetError):
    """Only the leader can answer the request."""

    def __init__(self, leader_url: str | None, message: str = "Only the leader can answer this request.") -> None:
        super().__init__(message, leader_url)


class RebalanceNeededError(ConnectError):
    """A rebalance is pending, so this worker cannot tell yet which worker must answer the request (409)."""

    def __init__(self) -> None:
        super().__init__(
            "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config "
            "change)"
        )


class NotAssignedError(RequestTargetError):
    """Only the worker that runs the connector or task can answer the request."""


class ConflictError(ConnectError):
    """Another change has overtaken the request and made it pointless (409)."""


class LeaderRequestError(ConnectError):
    """The leader did not carry out this worker's request. `status` is the HTTP status, or None without a response."""

    def __init__(self, message: str, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class NotReadyError(ConnectError):
    """The worker cannot carry out the request now, for example because it is starting or stopping (503)."""


def _shown(value: object) -> str:
    """Return a value as Kafka prints it in its messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    return str(value)
