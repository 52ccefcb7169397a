"""`ConfigProviders`: replaces variables in settings, such as ${file:/etc/db.properties:password}, with their values.

A variable is replaced only in the worker that uses the setting, and only when the setting is used (KIP-297, KIP-421).
The config topic and the REST interface contain the variables, not the values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ..config.java_regex import compiled
from ..errors import ConfigValueError, ConnectError
from .files import properties
from .secrets import Secrets

PROVIDERS: Final = "config.providers"

_VARIABLE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_JAVA: Final = "org.apache.kafka.common.config.provider."
_REMEDY: Final = "Name FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider"

Provider = Callable[[str, str], str]
"""A function of (path, key) that returns a value. It raises ConnectError, whose message never contains a value."""


class ConfigProviders:
    """The config providers that the settings of a worker name; none by default."""

    def __init__(self, worker: Mapping[str, str]) -> None:
        """Raise ConfigValueError for a provider that is unknown or has an invalid parameter."""
        names = [name.strip() for name in worker.get(PROVIDERS, "").split(",")]
        self.known: set[str] = {PROVIDERS}
        """The names of the settings that were read."""
        self._providers = {name: self._provider(name, worker) for name in names if name}

    def has_variable(self, value: str | None) -> bool:
        """Return whether a value contains a variable of one of the providers."""
        return value is not None and any(match[1] in self._providers for match in _VARIABLE.finditer(value))

    def resolved(self, settings: Mapping[str, str], secrets: Secrets | None = None) -> dict[str, str]:
        """Return settings with the values of their variables, and add these values to `secrets`.

        Variables of other providers stay as they are. Raises ConfigValueError, which shows the variables instead of
        values, if a variable has no value.
        """
        return {name: self._resolved(name, value, secrets) for name, value in settings.items()}

    def _resolved(self, name: str, value: str, secrets: Secrets | None = None) -> str:
        def found(match: re.Match[str]) -> str:
            provider = self._providers.get(match[1])
            if provider is None:
                return match[0]
            text = provider(match[2] or "", match[3])
            if secrets is not None:
                secrets.add(text, match[0])
            return text

        try:
            return _VARIABLE.sub(found, value)
        except ConnectError as error:
            raise ConfigValueError(name, value, str(error)) from error

    def with_variables(self, settings: Mapping[str, str], of_connector: Mapping[str, str]) -> dict[str, str]:
        """Return a task's settings with variables instead of the variables' values.

        `of_connector` contains the connector's settings with their variables.
        """
        return {
            name: of_connector[name] if self.has_variable(of_connector.get(name)) else value
            for name, value in settings.items()
        }

    def hidden(self, message: str, settings: Mapping[str, str], own: str | None = None) -> str:
        """Return a message in which the values of variables are replaced by the variables, such as ${file:db:password}.

        `own` is the setting that the message is about: the values of its variables are replaced wherever they appear.
        The value of any other setting is replaced only where the message says "Invalid value ... for configuration
        NAME:".
        """
        variables = {name: value for name, value in settings.items() if self.has_variable(value)}
        if not variables:
            return message
        secrets: dict[str, str] = {}
        for match in _VARIABLE.finditer(variables.get(own or "", "")):
            secrets[self._resolved(own or "", match[0])] = match[0]
        names = "|".join(map(re.escape, variables))
        values = "|".join(re.escape(secret) for secret in sorted(secrets, key=len, reverse=True) if secret)

        def concealed(found: re.Match[str]) -> str:
            if found["name"] is None:
                return secrets[found[0]]
            return f"Invalid value {variables[found['name']]} for configuration {found['name']}:"

        # In one pass, because a variable may contain what looks like a value.
        refused = rf"Invalid value .*? for configuration (?P<name>{names}):"
        return re.sub(f"{refused}|{values}" if values else refused, concealed, message, flags=re.DOTALL)

    def _provider(self, name: str, worker: Mapping[str, str]) -> Provider:
        prefix = f"{PROVIDERS}.{name}."
        paths, pattern = f"{prefix}param.allowed.paths", f"{prefix}param.allowlist.pattern"
        class_name = worker.get(f"{prefix}class", "")
        self.known.add(f"{prefix}class")
        match class_name.removeprefix(_JAVA):
            case "FileConfigProvider":
                self.known.add(paths)
                return _file_provider(_allowed(paths, worker))
            case "DirectoryConfigProvider":
                self.known.add(paths)
                return _directory_provider(_allowed(paths, worker))
            case "EnvVarConfigProvider":
                self.known.add(pattern)
                return _environment_provider(pattern, worker)
        problem = f"is not a config provider that workers of oncelog have. {_REMEDY}"
        raise ConfigValueError(f"{prefix}class", class_name, problem)


_Allowed = Callable[[str], Path]
"""A function that returns the path of a variable. It raises ConnectError for a path that is not allowed."""


def _allowed(setting: str, worker: Mapping[str, str]) -> _Allowed:
    text = worker.get(setting, "")
    entries = [each.strip() for each in text.split(",")] if text else []
    for each in entries:
        if not Path(each).is_absolute() or not Path(each).exists():
            raise ConfigValueError(setting, each, "must be an absolute path that exists")
    roots = [Path(os.path.normpath(each)) for each in entries]

    def allowed(text: str) -> Path:
        path = Path(os.path.normpath(text))
        if roots and not any(path.is_relative_to(root) for root in roots):
            raise ConnectError(f"{setting} does not allow the path {text}")
        return path

    return allowed


def _file_provider(allowed: _Allowed) -> Provider:
    def value(path: str, key: str) -> str:
        values = properties(_text(allowed(path)))
        if key not in values:
            raise ConnectError(f"the file {path} has no key {key}")
        return values[key]

    return value


def _directory_provider(allowed: _Allowed) -> Provider:
    def value(path: str, key: str) -> str:
        directory = allowed(path)
        if key in ("", ".", "..") or "/" in key or not (directory / key).is_file():
            raise ConnectError(f"the directory {path} has no file {key}")
        return _text(directory / key)

    return value


def _environment_provider(setting: str, worker: Mapping[str, str]) -> Provider:
    try:
        pattern = compiled(worker.get(setting, "(?s).*"))
    except re.error as error:
        raise ConfigValueError(setting, worker[setting], f"is not a regular expression: {error}") from None

    def value(path: str, key: str) -> str:
        if path:
            raise ConnectError(f"a variable of the environment has no path, but {path!r} was given")
        if not pattern.fullmatch(key):
            raise ConnectError(f"{setting} does not allow the variable {key}")
        if key not in os.environ:
            raise ConnectError(f"the environment has no variable {key}")
        return os.environ[key]

    return value


def _text(path: Path) -> str:
    """Return the content of a file, with its line ends. Raises ConnectError, whose message does not contain the
    content.
    """
    try:
        if not path.is_file():
            raise ConnectError(f"{path} is not a file")
        return path.read_bytes().decode()
    except OSError as error:
        raise ConnectError(f"the file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConnectError(f"the file {path} is not text in UTF-8") from None
