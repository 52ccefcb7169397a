"""Builds the response that says "this whole request failed", for any API, from the definitions alone.

Where the response has a top-level error code, that is set. Where codes are per topic, partition, group or
transaction, the request's items are mirrored: each item of the request gets an item of the response with the same
identity (name, id, index) and the code. No API is named here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ..protocol.schema import FieldSpec, Request, Response, Struct
from .steps import Steps

_CODES: Final = ("error_code", "partition_error_code")
"""How definitions call the code of the struct that it is in."""

_SAME: Final = (
    frozenset({"name", "topic", "topic_name", "topic_names", "topics"}),
    frozenset({"partition", "partition_index", "index", "partitions", "partition_indexes"}),
    frozenset({"group_id", "group", "groups", "groups_names", "key", "coordinator_keys"}),
    frozenset({"transactional_id", "transactional_ids"}),
    frozenset({"producer_id"}),
)
"""Names under which definitions speak of the same thing."""


def error_response(request: Request[Any], version: int, code: int, message: str | None) -> Steps[Response]:
    """Make the response of `request`'s API in which everything failed with `code`."""
    response: Response = request.response()
    if not _blame(response, version, code, message):
        yield from _mirror(request, response, version, code, message)
    return response


def _blame(target: Struct, version: int, code: int, message: str | None) -> bool:
    """Set the target's own error code and message, where it has them in this version."""
    found = False
    for spec in target.fields:
        if version not in spec.versions:
            continue
        if spec.name in _CODES:
            setattr(target, spec.name, code)
            found = True
        elif spec.name == "error_message" and version in spec.nullable:
            target.error_message = message  # type: ignore[attr-defined]
    return found


def has_error_codes(struct: type[Struct]) -> bool:
    """Whether the struct, or something inside it, has an error code."""
    return any(spec.name in _CODES or (spec.struct and has_error_codes(spec.struct)) for spec in struct.fields)


def _arrays(struct: type[Struct], version: int) -> Iterable[FieldSpec]:
    return (spec for spec in struct.fields if spec.is_array and version in spec.versions)


def _mirror(asked: Struct, answer: Struct, version: int, code: int, message: str | None) -> Steps[None]:
    """Fill the answer's array of blamed items with one item for each item of the request's matching array."""
    for spec in _arrays(type(answer), version):
        if spec.struct is None or not has_error_codes(spec.struct):
            continue
        source = next((s for s in _arrays(type(asked), version) if getattr(asked, s.name)), None)
        if source is None:
            continue
        items = getattr(answer, spec.name)
        for asked_item in getattr(asked, source.name):
            item = spec.struct()
            _identify(item, asked_item, source, version)
            if not _blame(item, version, code, message) and isinstance(asked_item, Struct):
                yield from _mirror(asked_item, item, version, code, message)
            items.append(item)
            yield 5
        return


def _identify(item: Struct, asked: Any, source: FieldSpec, version: int) -> None:
    """Copy what names the item: equal names or known synonyms; a bare id goes into the field of its kind."""
    if not isinstance(asked, Struct):
        for spec in item.fields:
            if spec.wire_type is source.wire_type and not spec.is_array and _same(spec.name, source.name):
                setattr(item, spec.name, asked)
                return
        for spec in item.fields:
            if spec.wire_type is source.wire_type and not spec.is_array and not spec.name.startswith("error"):
                setattr(item, spec.name, asked)
                return
        return
    for spec in item.fields:
        if spec.is_array or spec.struct is not None or spec.name.startswith("error"):
            continue
        for asked_spec in asked.fields:
            if asked_spec.wire_type is spec.wire_type and not asked_spec.is_array and _same(spec.name, asked_spec.name):
                value = getattr(asked, asked_spec.name)
                if value is not None or version in spec.nullable:
                    setattr(item, spec.name, value)
                break


def _same(one: str, other: str) -> bool:
    return one == other or any(one in names and other in names for names in _SAME)


CodePaths = tuple[str, tuple[tuple[str, bool, Any], ...]]


def code_paths(struct: type[Struct], version: int) -> CodePaths:
    """Where codes are in a response: (its own code's field or "", ((field, is array, paths of its struct), ...))."""
    own = next((spec.name for spec in struct.fields if spec.name in _CODES and version in spec.versions), "")
    inner = tuple(
        (spec.name, spec.is_array, code_paths(spec.struct, version))
        for spec in struct.fields
        if spec.struct is not None and version in spec.versions and has_error_codes(spec.struct)
    )
    return own, inner


def code_replacer(paths: CodePaths, older: dict[int, int]) -> Callable[[Any], None]:
    """Make a function that replaces the codes which `older` has a substitute for, everywhere in a small response.

    It is written out as source, with a loop for each array: it runs once per response.
    """
    lines = ["def replace(o0):", "    pass"]

    def visit(paths: CodePaths, target: str, depth: int) -> None:
        own, inner = paths
        indent = "    " * depth
        if own:
            lines.append(f"{indent}if {target}.{own} in older: {target}.{own} = older[{target}.{own}]")
        for name, is_array, deeper in inner:
            source = f"{target}.{name}"
            items = f"{source} or ()" if is_array else f"() if {source} is None else ({source},)"
            lines.append(f"{indent}for o{depth} in {items}:")
            visit(deeper, f"o{depth}", depth + 1)

    visit(paths, "o0", 1)
    names: dict[str, Any] = {"older": older}
    exec(compile("\n".join(lines), "<code replacer>", "exec"), names)
    replace: Callable[[Any], None] = names["replace"]
    return replace


def replace_codes_in_steps(target: Any, paths: CodePaths, older: dict[int, int]) -> Steps[None]:
    """Do the same in steps, for a response of any size."""
    own, inner = paths
    if own and (code := getattr(target, own)) in older:
        setattr(target, own, older[code])
    for name, is_array, deeper in inner:
        value = getattr(target, name)
        if is_array:
            for item in value or ():
                yield from replace_codes_in_steps(item, deeper, older)
                yield 1
        elif value is not None:
            yield from replace_codes_in_steps(value, deeper, older)
