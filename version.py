"""The version of the package: the only place that has it. pyproject.toml reads it from here.

Reading the metadata of an installed package instead would import some 20 modules of the standard library.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
