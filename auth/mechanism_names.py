"""The names of the SASL mechanisms. They are not in the modules that implement the mechanisms, because those import
cryptographic libraries.
"""

from __future__ import annotations

from typing import Final

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"

SCRAM_NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""The SCRAM mechanisms, and their numbers in requests about credentials (KIP-554)."""

SCRAM_NAMES: Final = {number: name for name, number in SCRAM_NUMBERS.items()}
"""The SCRAM mechanisms by their numbers."""
