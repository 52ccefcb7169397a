"""Opens databases, and lists their tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from ...errors import ConfigValueError, ConnectError
from .types import json_text


def open_engine(settings: Mapping[str, Any]) -> sa.Engine:
    """Return an engine for the database. The engine connects when it is first used.

    Raises ConnectError for an invalid URL or a missing driver.
    """
    try:
        url = sa.make_url(settings["connection.url"])
        password = settings["connection.password"]
        if settings["connection.user"] is not None:
            url = url.set(username=settings["connection.user"])
        if password is not None:
            url = url.set(password=password.value)
        # Python's numbers do not have all digits of a document's numbers.
        options = (
            {"json_deserializer": json_text} if "json_deserializer" in sa.util.get_cls_kwargs(url.get_dialect()) else {}
        )
        engine = sa.create_engine(url, pool_size=1, max_overflow=1, pool_pre_ping=True, **options)
    except sa.exc.ArgumentError as error:
        raise ConfigValueError("connection.url", "[hidden]", f"is not the URL of a database: {error}") from None
    except ModuleNotFoundError as error:
        raise ConnectError(
            f"the driver of connection.url is not installed: {error.name}. Install it with pip, or name another "
            "driver: postgresql+psycopg://…"
        ) from None
    if (engine.dialect.name, engine.dialect.driver) == ("postgresql", "psycopg"):
        from .infinity import read_infinity

        read_infinity(engine)
    return engine


def tables_of(engine: sa.Engine, schema: str | None) -> list[str]:
    """Return the names of the tables of a schema, sorted. Raises ConnectError if the database does not answer."""
    try:
        return sorted(sa.inspect(engine).get_table_names(schema))
    except sa.exc.SQLAlchemyError as error:
        raise ConnectError(f"the tables of connection.url cannot be listed: {error.__cause__ or error}") from error
