"""docs/formats.md says what the definitions say."""

from __future__ import annotations

from pathlib import Path

import pytest
from oncelog.protocol import documentation
from oncelog.protocol.schema import Message, Struct
from support.definitions import case_name, message_classes

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"


def test_the_page_is_fresh() -> None:
    page = PAGE.read_text("utf-8")
    assert documentation.updated(page) == page, "stale: run `make docs`"


def test_the_page_has_every_table_once() -> None:
    page = PAGE.read_text("utf-8")
    for name in documentation.TABLES:
        assert page.count(f"<!-- generated: {name} -->") == 1


def test_a_table_that_nobody_makes_is_refused() -> None:
    with pytest.raises(KeyError):
        documentation.updated("<!-- generated: nothing -->\n<!-- end -->")


@pytest.mark.parametrize("cls", message_classes(), ids=case_name)
def test_every_message_says_what_it_is_for(cls: type[Message]) -> None:
    assert cls.__doc__
    assert not cls.__doc__.startswith("Part of a message")


@pytest.mark.parametrize("cls", message_classes(), ids=case_name)
def test_every_definition_is_sound(cls: type[Message]) -> None:
    check_structs(cls, cls)


def check_structs(cls: type[Struct], message: type[Message]) -> None:
    """Check what the schema language itself does not: tags, nulls and flexible versions."""
    tags = [(spec.tag, version) for spec in cls.fields if spec.tag is not None for version in tagged(spec, message)]
    assert len(set(tags)) == len(tags), "one tag, two fields"
    for spec in cls.fields:
        for version in message.spec.versions:
            if version in spec.versions and version in spec.tagged:
                assert version in message.spec.flexible, f"{spec.name}: tagged in a version that is not flexible"
                assert spec.default is not None or version in spec.nullable, f"{spec.name}: null, but not nullable"
        if spec.struct is not None:
            check_structs(spec.struct, message)


def tagged(spec: object, message: type[Message]) -> list[int]:
    """Return the versions of a message in which a field is tagged."""
    return [version for version in message.spec.versions if version in spec.tagged]  # type: ignore[attr-defined]
