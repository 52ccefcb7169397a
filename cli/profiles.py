"""Read the settings of clients from a file, or from a named table of the user's profiles file.

The profiles file is $ONCELOG_PROFILES, else oncelog/profiles.toml in $XDG_CONFIG_HOME, else in ~/.config.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

import click

from ..client.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from ..connect.settings.files import read_settings, read_tables
from .environment import Variable

Client = Literal["admin", "consumer", "producer", "any"]
"""The client of a command. `any`: one that has only the settings that all clients have."""

_TABLES: Final[Mapping[Client, type[ClientConfig]]] = {
    "admin": AdminConfig,
    "consumer": ConsumerConfig,
    "producer": ProducerConfig,
    "any": ClientConfig,
}


def location() -> Path:
    """Return the path of the profiles file."""
    given = os.environ.get(Variable.PROFILES)
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "oncelog" / "profiles.toml"


def named(profile: str) -> dict[str, str]:
    """Return the settings of a profile by their names.

    Raises ConnectError if the file cannot be read or parsed, and UsageError if the file does not exist or does not
    contain the profile.
    """
    file = location()
    if not file.exists():
        raise click.UsageError(
            f"The profiles file {file} does not exist. Create it with a table [{profile}] of client settings, or name"
            f" another file in {Variable.PROFILES}."
        )
    tables = read_tables(file)
    _warn_if_exposed(file, (name for table in tables.values() for name in table))
    if profile not in tables:
        known = f"It has {', '.join(tables)}." if tables else "It has no profiles."
        raise click.UsageError(f"There is no profile {profile!r} in {file}. {known}")
    return tables[profile]


def of_file(file: Path) -> dict[str, str]:
    """Return the settings in a file by their names. Raises ConnectError if the file cannot be read or parsed."""
    settings = read_settings(file)
    _warn_if_exposed(file, settings)
    return settings


def settings_of(client: Client, settings: Mapping[str, str]) -> dict[str, object]:
    """Return the settings that a client has, as keyword arguments. Those that only other clients have are left out.

    Raises ConfigError for a name that no client has.
    """
    own = _TABLES[client]
    keywords: dict[str, object] = {}
    for name, value in settings.items():
        if own.has(name):
            keywords[name.replace(".", "_")] = value
        elif not any(table.has(name) for table in _TABLES.values()):
            raise next((table for table in _TABLES.values() if table.similar(name)), own).unknown(name)
    return keywords


def _warn_if_exposed(file: Path, names: Iterable[str]) -> None:
    """Print a warning if the file contains a secret setting and other users may read the file."""
    secret = {setting.name for config in _TABLES.values() for setting in config.settings() if setting.is_secret}
    exposed = sorted(secret.intersection(name.replace("_", ".") for name in names))
    if exposed and os.name == "posix" and file.stat().st_mode & 0o044:
        click.echo(
            f"oncelog: warning: other users can read {file}, which holds {', '.join(exposed)}. Run: chmod 600 {file}",
            err=True,
        )
