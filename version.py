"""The version of the package. Only this file defines it, and pyproject.toml reads it from here."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
