"""Find out which messages have tagged fields of oncelog's protocol extension, and whether a client sent such a field.

The extension (group-aware transactions and sessions) uses the tags from 9000 on. The broker and the client define the
meaning of its fields.
"""

from __future__ import annotations

from typing import Any, Final

from .formats import EXTENSION_TAGS
from .schema import Struct

_known: Final[dict[tuple[Any, int], bool]] = {}


def has_extension_fields(struct: type[Struct], version: int) -> bool:
    """Return whether the definition, or a struct inside it, has a field of the extension in this version."""
    found = _known.get((struct, version))
    if found is None:
        found = _known[struct, version] = any(
            (spec.tag is not None and spec.tag >= EXTENSION_TAGS and version in spec.tagged)
            or (spec.struct is not None and version in spec.versions and has_extension_fields(spec.struct, version))
            for spec in struct.fields
        )
    return found


def carries_extension(message: Struct, version: int) -> bool:
    """Return whether a message has fields of the extension. Its decoder must have left them raw, in `unknown_tags`.

    Only tags that the message's definition has are regarded as fields of the extension, not all tags from 9000 on.
    """
    if not has_extension_fields(type(message), version):
        return False
    sent = {tag for tag, _ in message.unknown_tags}
    for spec in message.fields:
        if spec.tag is not None and spec.tag >= EXTENSION_TAGS:
            if version in spec.tagged and spec.tag in sent:
                return True
        elif spec.struct is not None and version in spec.versions:
            value = getattr(message, spec.name)
            items = value if spec.is_array else [value]
            if any(item is not None and carries_extension(item, version) for item in items or ()):
                return True
    return False
