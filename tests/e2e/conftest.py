"""Fixtures of the end-to-end tests: a PostgreSQL server, and a database of it for PostgresSource."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.postgres import PostgresServer


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A server that is shared by the tests of a module."""
    from support.postgres import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture
def database(postgres: PostgresServer, fresh_name: Callable[[str], str]) -> Iterator[str]:
    """The name of a new database. It is dropped with the slots of PostgresSource."""
    from support.postgres_source import temporary_database

    with temporary_database(postgres, fresh_name("d").replace("-", "_")) as name:
        yield name
