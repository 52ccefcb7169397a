"""Build the response that reports the failure of a whole request, for any API, from the message definitions alone.

If the response has a top-level error code, that code is set. Otherwise each item of the response has an error code, for
example each topic, partition or group. The response then gets one item for each item of the request, with the same
identity (name, id, index) and the error code. This module names no API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from ...protocol.schema import FieldSpec, Request, Response, Struct
from ..scheduling.steps import Steps

_CODES: Final = ("error_code", "partition_error_code")
"""The names of fields that hold the error code of the struct that contains them."""

_SAME: Final = (
    frozenset({"name", "topic", "topic_name", "topic_names", "topics"}),
    frozenset({"partition", "partition_index", "index", "partitions", "partition_indexes"}),
    frozenset({"group_id", "group", "groups", "groups_names", "key", "coordinator_keys"}),
    frozenset({"transactional_id", "transactional_ids"}),
    frozenset({"producer_id"}),
    frozenset({"user", "name"}),
)
"""Groups of field names that mean the same thing in different definitions."""

_ABSENT: Final = frozenset(
    {"base_offset", "committed_offset", "high_watermark", "log_start_offset", "low_watermark", "producer_epoch"}
)
"""Fields that are -1 in an item with an error, even if their default or the request contains another value."""

_RESULTS: Final = frozenset({"leader_epoch", "num_partitions", "replication_factor", "timestamp"})
"""Names of response fields that describe what was created or found. They do not identify an item."""


def error_response(request: Request[Any], version: int, code: int, message: str | None) -> Steps[Response]:
    """Return the response to `request` with `code` at the top level or, if it has no error code there, in every item.

    As in Kafka, the nullable fields of the response are null, except the error message.
    """
    response: Response = request.response()
    for spec in response.fields:
        if version in spec.nullable:
            setattr(response, spec.name, None)
    if not _blame(response, version, code, message):
        yield from add_errors(request, response, version, code, message)
    return response


def _blame(target: Struct, version: int, code: int, message: str | None) -> bool:
    """Set the error code and message of `target`, if this version has them. Return whether it has an error code."""
    found = False
    for spec in target.fields:
        if version not in spec.versions:
            continue
        if spec.name in _CODES:
            setattr(target, spec.name, code)
            found = True
        elif spec.name in _ABSENT:
            setattr(target, spec.name, -1)
        elif spec.name == "error_message" and version in spec.nullable:
            target.error_message = message  # type: ignore[attr-defined]
    return found


def has_error_codes(struct: type[Struct]) -> bool:
    """Return whether the struct, or a struct nested in it, has an error code."""
    return any(spec.name in _CODES or (spec.struct and has_error_codes(spec.struct)) for spec in struct.fields)


def _arrays(struct: type[Struct], version: int) -> Iterable[FieldSpec]:
    return (spec for spec in struct.fields if spec.is_array and version in spec.versions)


def add_errors(asked: Struct, answer: Struct, version: int, code: int, message: str | None) -> Steps[None]:
    """For each item in the arrays of the request `asked`, add an item with the error to the response `answer`.

    If the response has no counterpart of an item, such as a directory of AlterReplicaLogDirs, the arrays inside the
    item are used instead. If several arrays of the request contribute items to one array of the response, items
    whose plain fields (neither structs nor arrays) are equal become one. The generator yields once for each item.
    """
    for spec in _arrays(type(answer), version):
        if spec.struct is None or not has_error_codes(spec.struct):
            continue
        arrays = list(_arrays(type(asked), version))
        sources = [source for source in arrays if getattr(asked, source.name)]
        if not sources:
            continue
        items = getattr(answer, spec.name)
        identities: set[tuple[Any, ...]] = set()
        for source in sources:
            for asked_item in getattr(asked, source.name):
                yield 5
                item = spec.struct()
                if not _identify(item, asked_item, source, version) and _has_items(asked_item, version):
                    yield from add_errors(asked_item, answer, version, code, message)
                    continue
                if len(arrays) > 1:
                    identity = _plain_values(item)
                    if identity in identities:
                        continue
                    identities.add(identity)
                if not _blame(item, version, code, message) and isinstance(asked_item, Struct):
                    yield from add_errors(asked_item, item, version, code, message)
                items.append(item)
        return


def _has_items(asked: Any, version: int) -> bool:
    return isinstance(asked, Struct) and any(spec.struct for spec in _arrays(type(asked), version))


def _identify(item: Struct, asked: Any, source: FieldSpec, version: int) -> bool:
    """Copy the fields that identify the item: fields with equal or synonymous names. Return whether there are any.

    If `asked` is a plain value, it is copied into the field for that kind of value.
    """
    if not isinstance(asked, Struct):
        for spec in item.fields:
            if spec.wire_type is source.wire_type and not spec.is_array and _same(spec.name, source.name):
                setattr(item, spec.name, asked)
                return True
        for spec in item.fields:
            if spec.wire_type is source.wire_type and not spec.is_array and not spec.name.startswith("error"):
                setattr(item, spec.name, asked)
                return True
        return False
    found = False
    for spec in item.fields:
        if spec.struct is not None:
            if any(one.name == spec.name and one.struct is spec.struct for one in asked.fields):
                setattr(item, spec.name, getattr(asked, spec.name))
                found = True
            continue
        if spec.is_array or spec.name.startswith("error") or spec.name in _RESULTS:
            continue
        for asked_spec in asked.fields:
            if asked_spec.wire_type is spec.wire_type and not asked_spec.is_array and _same(spec.name, asked_spec.name):
                value = getattr(asked, asked_spec.name)
                if value is not None or version in spec.nullable:
                    setattr(item, spec.name, value)
                found = True
                break
    return found


def _plain_values(item: Struct) -> tuple[Any, ...]:
    """Return the values of those fields of `item` that are neither structs nor arrays."""
    return tuple(getattr(item, spec.name) for spec in item.fields if spec.struct is None and not spec.is_array)


def _same(one: str, other: str) -> bool:
    return one == other or any(one in names and other in names for names in _SAME)


CodePaths = tuple[str, tuple[tuple[str, bool, Any], ...]]


def code_paths(struct: type[Struct], version: int) -> CodePaths:
    """Return the paths of error codes: (the struct's code field or "", ((field, is array, paths inside), ...))."""
    own = next((spec.name for spec in struct.fields if spec.name in _CODES and version in spec.versions), "")
    inner = tuple(
        (spec.name, spec.is_array, code_paths(spec.struct, version))
        for spec in struct.fields
        if spec.struct is not None and version in spec.versions and has_error_codes(spec.struct)
    )
    return own, inner


def code_replacer(paths: CodePaths, older: dict[int, int]) -> Callable[[Any], None]:
    """Return a function that replaces, in a small response, each code for which `older` has a substitute.

    The function is generated as source with one loop per array, because it runs once per response.
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
    """Replace the codes for which `older` has a substitute, in steps, so that the response may have any size."""
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
