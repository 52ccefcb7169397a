"""The classes that the language of message definitions makes."""

from __future__ import annotations

import inspect

import pytest
from oncelog.protocol.schema import Struct, array, int32, nested, string, struct


@struct
class Part(Struct):
    number: int = int32()


@struct
class Whole(Struct):
    name: str = string(default="none")
    parts: list[Part] = array(Part)
    first: Part = nested(Part)
    last: Part | None = nested(Part, "0+", nullable="0+", default=None)


def test_the_fields_of_an_object_are_given_by_name_or_by_position() -> None:
    assert Whole(name="a", first=Part(number=1)) == Whole("a", [], Part(1), None)
    tagged = Whole("a", unknown_tags=((7, b"x"),))  # type: ignore[call-arg]
    assert tagged.unknown_tags == ((7, b"x"),)


def test_fields_that_are_not_given_have_their_defaults_and_share_no_objects() -> None:
    one, other = Whole(), Whole()
    assert (one.name, one.parts, one.first, one.last, one.unknown_tags) == ("none", [], Part(), None, ())
    one.parts.append(Part(1))
    one.first.number = 2
    assert (other.parts, other.first) == ([], Part(0))


def test_unknown_names_and_too_many_values_are_refused_also_by_the_first_call() -> None:
    @struct
    class New(Struct):
        number: int = int32()

    for _ in range(2):
        with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
            New(size=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="positional argument"):
            New(1, (), 2)  # type: ignore[call-arg]
    assert New(3).number == 3


def test_the_first_call_of_a_class_generates_its_own_init() -> None:
    @struct
    class New(Struct):
        number: int = int32(default=5)

    assert "__init__" not in vars(New)
    assert New().number == 5
    assert list(inspect.signature(New.__init__).parameters) == ["self", "number", "unknown_tags"]
