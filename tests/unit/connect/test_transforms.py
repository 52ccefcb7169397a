"""Single-message transforms and predicates, with and without schemas."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from oncelog.connect.api.records import Header, SourceRecord
from oncelog.connect.config import ConfigDef
from oncelog.connect.data.logical import date_schema, time_schema, timestamp_schema
from oncelog.connect.data.schema import INT8, INT32, INT64, STRING, Schema, SchemaType, mapping, struct
from oncelog.connect.data.struct import Struct
from oncelog.connect.errors import ConfigValueError, DataError
from oncelog.connect.plugins import PluginKind, installed, load_class
from oncelog.connect.transforms.chain import enriched, stages

INNER = struct({"b": INT32}, optional=True)
ROW = struct({"id": INT32, "name": STRING, "inner": INNER}, name="row")
PLAIN = SourceRecord(topic="t", value={"id": 1, "name": "x", "inner": {"b": 2}}, timestamp_ms=1_577_934_245_678)
TYPED = PLAIN.replace(value_schema=ROW, value=Struct(ROW, id=1, name="x", inner=Struct(INNER, b=2)))


def apply(name: str, record: SourceRecord, **settings: str) -> SourceRecord | None:
    transform = load_class(name)()
    transform.configure({key.replace("_", "."): value for key, value in settings.items()})
    return transform.apply(record)  # type: ignore[no-any-return]


def both(name: str, **settings: str) -> tuple[Any, dict[str, Any]]:
    """Return the value without a schema, and the fields of the one with it."""
    plain, typed = apply(name, PLAIN, **settings), apply(name, TYPED, **settings)
    assert plain is not None
    assert typed is not None
    value = typed.value
    assert isinstance(value, Struct)
    assert value.schema == typed.value_schema
    value.check()
    return plain.value, {field.name: value[field.name] for field in value.schema.fields}


def test_insert_field_adds_what_is_known_of_the_record() -> None:
    settings = {"topic_field": "topic!", "timestamp_field": "at", "static_field": "s?", "static_value": "fixed"}
    plain, typed = both("InsertField$Value", **settings)
    assert plain == {**PLAIN.value, "topic": "t", "at": 1_577_934_245_678, "s": "fixed"}
    assert typed["topic"] == "t"
    assert typed["at"] == datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, datetime.UTC)
    record = apply("InsertField$Value", TYPED, **settings)
    assert record is not None
    assert record.value_schema is not None
    fields = {field.name: field.schema for field in record.value_schema.fields}
    assert (fields["topic"].optional, fields["s"].optional, fields["at"]) == (
        False,
        True,
        timestamp_schema(optional=True),
    )
    assert apply("InsertField$Value", PLAIN.replace(value=None), **settings) == PLAIN.replace(value=None)
    with pytest.raises(ConfigValueError, match="No field insertion configured"):
        apply("InsertField$Value", PLAIN)
    with pytest.raises(DataError, match="Only Map objects supported in absence of schema for \\[field insertion\\]"):
        apply("InsertField$Value", PLAIN.replace(value="text"), **settings)


def test_replace_field_leaves_out_and_renames() -> None:
    plain, typed = both("ReplaceField$Value", exclude="inner", renames="id:key,name:id")
    assert plain == typed == {"key": 1, "id": "x"}
    plain, typed = both("ReplaceField$Value", include="id")
    assert plain == typed == {"id": 1}
    for wrong in ("a", "a:b:c", "a:"):
        with pytest.raises(ConfigValueError, match=f"Invalid rename mapping: {wrong}, write old:new"):
            apply("ReplaceField$Value", PLAIN, renames=wrong)


def test_renames_are_checked_when_settings_are_validated() -> None:
    given = {"transforms": "a", "transforms.a.type": "ReplaceField$Value", "transforms.a.renames": "x:y,z"}
    errors = {
        outcome.name: outcome.errors for outcome in enriched(ConfigDef(), given).validate(given) if outcome.errors
    }
    assert errors == {
        "transforms.a.renames": [
            "Invalid value [x:y, z] for configuration renames: Invalid rename mapping: z, write old:new"
        ]
    }


def test_mask_field_empties_or_replaces() -> None:
    plain, typed = both("MaskField$Value", fields="id,name")
    assert (plain["id"], plain["name"], typed["id"], typed["name"]) == (0, "", 0, "")
    plain, typed = both("MaskField$Value", fields="id,name", replacement="7")
    assert (plain["id"], plain["name"], typed["id"], typed["name"]) == (7, "7", 7, "7")
    with pytest.raises(DataError, match="Unable to convert"):
        apply("MaskField$Value", PLAIN, fields="id", replacement="x")


def test_value_to_key_takes_fields() -> None:
    plain, typed = apply("ValueToKey", PLAIN, fields="id,name"), apply("ValueToKey", TYPED, fields="id,name")
    assert plain is not None
    assert plain.key == {"id": 1, "name": "x"}
    assert typed is not None
    assert typed.key_schema == struct({"id": INT32, "name": STRING})
    assert typed.key == Struct(struct({"id": INT32, "name": STRING}), id=1, name="x")
    with pytest.raises(DataError, match="Field does not exist: nope"):
        apply("ValueToKey", TYPED, fields="nope")


def test_extract_and_hoist_are_inverse() -> None:
    hoisted = apply("HoistField$Value", TYPED, field="all")
    assert hoisted is not None
    assert hoisted.value_schema == struct({"all": ROW})
    assert apply("ExtractField$Value", hoisted, field="all") == TYPED
    hoisted = apply("HoistField$Value", PLAIN, field="all")
    assert hoisted is not None
    assert hoisted.value == {"all": PLAIN.value}
    for record in (PLAIN, TYPED):
        nested = apply("ExtractField$Value", record, field="inner.b", field_syntax_version="V2")
        assert nested is not None
        assert nested.value == 2
    with pytest.raises(DataError, match="Unknown field: nope"):
        apply("ExtractField$Value", TYPED, field="nope")


@pytest.mark.parametrize(
    ("value", "schema", "target", "cast"),
    [
        (300, INT32, "int8", 44),
        (-129, INT32, "int8", 127),
        ("7", STRING, "int64", 7),
        (1.9, None, "int32", 1),
        (-1.9, None, "int32", -1),
        (float("nan"), None, "int32", 0),
        (5, INT8, "string", "5"),
        (True, None, "int8", 1),
        ("TRUE", None, "boolean", True),
        (0, None, "boolean", False),
        (1.5, None, "string", "1.5"),
        (b"\1", None, "string", "AQ=="),
        (0.1, None, "float32", 0.1),
        (0.1234567891, None, "float32", 0.12345679),
        (datetime.datetime(1970, 1, 2, tzinfo=datetime.UTC), timestamp_schema(), "int64", 86_400_000),
    ],
)
def test_cast_converts_as_java_does(value: Any, schema: Schema | None, target: str, cast: Any) -> None:
    record = apply("Cast$Value", PLAIN.replace(value=value, value_schema=schema), spec=target)
    assert record is not None
    assert record.value == cast
    if schema is not None:
        names = {"int8": SchemaType.INT8, "int64": SchemaType.INT64, "string": SchemaType.STRING}
        assert record.value_schema == Schema(names[target])


def test_cast_of_fields() -> None:
    plain, typed = both("Cast$Value", spec="id:string")
    assert (plain["id"], typed["id"]) == ("1", "1")
    with pytest.raises(ConfigValueError, match="Invalid cast type"):
        apply("Cast$Value", PLAIN, spec="id:complex")
    with pytest.raises(DataError, match="out of range"):
        apply("Cast$Value", PLAIN.replace(value="300"), spec="int8")


def test_flatten_joins_names() -> None:
    plain, typed = both("Flatten$Value", delimiter="_")
    assert plain == typed == {"id": 1, "name": "x", "inner_b": 2}
    record = apply("Flatten$Value", TYPED)
    assert record is not None
    assert record.value_schema is not None
    assert [(field.name, field.schema.optional) for field in record.value_schema.fields] == [
        ("id", False),
        ("name", False),
        ("inner.b", True),
    ]


def test_headers_are_inserted_moved_and_dropped() -> None:
    inserted = apply("InsertHeader", PLAIN, header="h", value_literal="5")
    assert inserted is not None
    assert inserted.headers == (Header("h", 5, INT8),)
    dropped = apply("DropHeaders", inserted, headers="h,other")
    assert dropped == PLAIN
    for record in (PLAIN, TYPED):
        moved = apply("HeaderFrom$Value", record, fields="id,name", headers="a,b", operation="move")
        assert moved is not None
        assert [(header.key, header.value) for header in moved.headers] == [("a", 1), ("b", "x")]
    plain, typed = both("HeaderFrom$Value", fields="id", headers="a", operation="move")
    assert plain.keys() == typed.keys() == {"name", "inner"}
    plain, typed = both("HeaderFrom$Value", fields="id", headers="a", operation="copy")
    assert plain.keys() == typed.keys() == {"id", "name", "inner"}
    with pytest.raises(ConfigValueError, match="same number of elements"):
        apply("HeaderFrom$Value", PLAIN, fields="id", headers="a,b", operation="move")


@pytest.mark.parametrize(
    ("name", "settings", "topic"),
    [
        ("RegexRouter", {"regex": "t", "replacement": "u"}, "u"),
        ("RegexRouter", {"regex": "(.)", "replacement": "$1-$1\\$"}, "t-t$"),
        ("RegexRouter", {"regex": "x.*", "replacement": "u"}, "t"),
        ("RegexRouter", {"regex": "(?<all>.*)", "replacement": "${all}2"}, "t2"),
        ("TimestampRouter", {}, "t-20200102"),
        ("TimestampRouter", {"topic_format": "${timestamp}.${topic}", "timestamp_format": "yyyy'y'MM"}, "2020y01.t"),
        ("TimestampRouter", {"timestamp_format": "HH:mm:ss.SSS"}, "t-03:04:05.678"),
    ],
)
def test_routers_choose_the_topic(name: str, settings: dict[str, str], topic: str) -> None:
    record = apply(name, PLAIN, **settings)
    assert record is not None
    assert record.topic == topic


def test_stages_apply_in_order_where_their_predicate_says_so() -> None:
    chain = stages(
        {
            "transforms": "drop,name",
            "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
            "transforms.drop.predicate": "gone",
            "transforms.name.type": "RegexRouter",
            "transforms.name.regex": "(.*)",
            "transforms.name.replacement": "new-$1",
            "transforms.name.predicate": "gone",
            "transforms.name.negate": "true",
            "predicates": "gone",
            "predicates.gone.type": "RecordIsTombstone",
        }
    )
    drop, name = chain
    tombstone = PLAIN.replace(value=None)
    assert (drop.apply(tombstone), drop.apply(PLAIN)) == (None, PLAIN)
    assert (name.apply(tombstone), name.apply(PLAIN)) == (tombstone, PLAIN.replace(topic="new-t"))
    with pytest.raises(ConfigValueError, match="must be one of the aliases in predicates"):
        stages({"transforms": "a", "transforms.a.type": "Filter", "transforms.a.predicate": "b"})


def test_set_schema_metadata_names_the_schema_and_keeps_the_rest() -> None:
    record = apply("SetSchemaMetadata$Value", TYPED, schema_name="other", schema_version="3")
    assert record is not None
    assert record.value_schema is not None
    assert (record.value_schema.name, record.value_schema.version) == ("other", 3)
    assert record.value_schema.fields == ROW.fields
    assert record.value.schema == record.value_schema
    assert record.value.values == TYPED.value.values
    kept = apply("SetSchemaMetadata$Value", TYPED, schema_version="3")
    assert kept is not None
    assert kept.value_schema is not None
    assert kept.value_schema.name == "row"
    key = apply("SetSchemaMetadata$Key", TYPED.replace(key_schema=INT32, key=5), schema_name="id")
    assert key is not None
    assert (key.key_schema, key.key) == (Schema(SchemaType.INT32, name="id"), 5)
    assert apply("SetSchemaMetadata$Value", PLAIN.replace(value=None), schema_name="x") == PLAIN.replace(value=None)
    with pytest.raises(DataError, match=r"Schema required for \[updating schema metadata\]"):
        apply("SetSchemaMetadata$Value", PLAIN, schema_name="x")
    with pytest.raises(ConfigValueError, match="Neither schema name nor version configured"):
        apply("SetSchemaMetadata$Value", TYPED)


AT = datetime.datetime(2020, 1, 2, 3, 4, 5, 678_000, datetime.UTC)
AT_MS = 1_577_934_245_678


@pytest.mark.parametrize(
    ("target", "settings", "result", "schema"),
    [
        ("unix", {}, AT_MS, INT64),
        ("unix", {"unix_precision": "seconds"}, AT_MS // 1000, INT64),
        ("Timestamp", {}, AT, timestamp_schema()),
        ("Date", {}, AT.date(), date_schema()),
        ("Time", {}, AT.time(), time_schema()),
        ("string", {"format": "yyyy-MM-dd'T'HH:mm:ss.SSSX"}, "2020-01-02T03:04:05.678Z", STRING),
    ],
)
def test_timestamp_converter_knows_every_target(
    target: str, settings: dict[str, str], result: Any, schema: Schema
) -> None:
    row = struct({"id": INT32, "at": timestamp_schema()})
    typed = TYPED.replace(value_schema=row, value=Struct(row, id=1, at=AT))
    settings = {"target_type": target, **settings}
    record = apply("TimestampConverter$Value", typed, field="at", **settings)
    assert record is not None
    assert record.value == Struct(struct({"id": INT32, "at": schema}), id=1, at=result)
    assert record.value.schema == record.value_schema
    plain = apply("TimestampConverter$Value", PLAIN.replace(value={"at": AT}), field="at", **settings)
    assert plain is not None
    assert plain.value == {"at": result}
    whole = apply("TimestampConverter$Key", PLAIN.replace(key_schema=timestamp_schema(), key=AT), **settings)
    assert whole is not None
    assert (whole.key_schema, whole.key) == (schema, result)


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        (AT_MS, {}),
        (AT_MS * 1000 + 1, {"unix_precision": "microseconds"}),
        ("2020-01-02 03:04:05.678", {"format": "yyyy-MM-dd HH:mm:ss.SSS"}),
        ("20200102030405678", {"format": "yyyyMMddHHmmssSSS"}),
        ("Thu, 2 Jan 2020 04:04:05.678 +0100", {"format": "EEE, d MMM yyyy HH:mm:ss.SSS Z"}),
        ("1/2/20 3:04:05.678 AM", {"format": "M/d/yy h:mm:ss.SSS a"}),
    ],
)
def test_timestamp_converter_reads_every_source(source: Any, settings: dict[str, str]) -> None:
    record = apply("TimestampConverter$Value", PLAIN.replace(value=source), target_type="Timestamp", **settings)
    assert record is not None
    assert record.value == AT


def test_timestamp_converter_keeps_nulls_and_names_what_is_wrong() -> None:
    row = struct({"at": timestamp_schema(optional=True)})
    record = apply(
        "TimestampConverter$Value", TYPED.replace(value_schema=row, value=Struct(row)), field="at", target_type="unix"
    )
    assert record is not None
    assert (record.value["at"], record.value_schema) == (None, struct({"at": INT64.as_optional()}))
    with pytest.raises(ConfigValueError, match="requires format option to be specified"):
        apply("TimestampConverter$Value", PLAIN, target_type="string")
    with pytest.raises(ConfigValueError, match="SimpleDateFormat-compatible"):
        apply("TimestampConverter$Value", PLAIN, target_type="string", format="bbb")
    with pytest.raises(DataError, match=r"value \(soon\) does not match pattern \(yyyy\)"):
        apply("TimestampConverter$Value", PLAIN.replace(value="soon"), target_type="unix", format="yyyy")
    with pytest.raises(DataError, match="does not correspond to a known timestamp type format"):
        apply("TimestampConverter$Value", PLAIN.replace(value_schema=INT32, value=1), target_type="unix")


@pytest.mark.parametrize(
    ("name", "settings", "record", "true"),
    [
        ("TopicNameMatches", {"pattern": "t"}, PLAIN, True),
        ("TopicNameMatches", {"pattern": "x"}, PLAIN, False),
        ("HasHeaderKey", {"name": "h"}, PLAIN.replace(headers=(Header("h", 1),)), True),
        ("HasHeaderKey", {"name": "h"}, PLAIN, False),
        ("RecordIsTombstone", {}, PLAIN, False),
    ],
)
def test_predicates(name: str, settings: dict[str, str], record: SourceRecord, true: bool) -> None:
    predicate = load_class(name)()
    predicate.configure(settings)
    assert predicate.test(record) is true


def test_an_empty_pattern_would_match_no_topic() -> None:
    with pytest.raises(ConfigValueError, match="String must be non-empty"):
        load_class("TopicNameMatches")().configure({"pattern": ""})


def test_validation_shows_the_settings_of_each_transform() -> None:
    given = {"transforms": "a,b", "transforms.a.type": "RegexRouter", "transforms.b.type": "Nope"}
    table = enriched(ConfigDef(), given)
    assert table.groups == ["Transforms: a", "Transforms: b"]
    assert list(table.keys) == [
        "transforms.a.type",
        "transforms.a.plugin.version",
        "transforms.a.regex",
        "transforms.a.replacement",
        "transforms.a.negate",
        "transforms.a.predicate",
        "transforms.b.type",
        "transforms.b.plugin.version",
    ]
    errors = {outcome.name: outcome.errors for outcome in table.validate(given) if outcome.errors}
    assert errors == {
        "transforms.a.regex": [
            'Missing required configuration "transforms.a.regex" which has no default value.',
            "Invalid value null for configuration regex: Invalid regex: no value is given",
        ],
        "transforms.a.replacement": [
            'Missing required configuration "transforms.a.replacement" which has no default value.'
        ],
        "transforms.b.type": ["Invalid value Nope for configuration transforms.b.type: Class Nope could not be found."],
    }


@pytest.mark.parametrize("kind", list(PluginKind))
def test_every_plugin_can_be_loaded_and_has_settings(kind: PluginKind) -> None:
    names = [name for name, _ in installed([kind])]
    assert names
    for name in names:
        cls: Any = load_class(name)
        assert isinstance(cls.config_def(), ConfigDef)


def test_inserted_fields_are_in_the_schema_of_records_that_lack_them() -> None:
    transform = load_class("InsertField$Value")()
    transform.configure({"partition.field": "partition", "timestamp.field": "at"})
    without = transform.apply(TYPED.replace(timestamp_ms=None))
    both = transform.apply(TYPED.replace(partition=3))
    assert without.value_schema == both.value_schema
    assert [field.name for field in both.value_schema.fields] == ["id", "name", "inner", "partition", "at"]
    assert (without.value["partition"], without.value["at"]) == (None, None)
    assert both.value["partition"] == 3
    plain = transform.apply(PLAIN.replace(timestamp_ms=None))
    assert plain.value == PLAIN.value


def test_only_the_last_character_of_an_inserted_field_says_whether_it_is_required() -> None:
    record = apply("InsertField$Value", TYPED, topic_field="topic!?")
    assert record is not None
    assert record.value["topic!"] == "t"


@pytest.mark.parametrize(
    ("value", "target", "cast"),
    [
        (3e9, "int32", 2**31 - 1),
        (-3e9, "int32", -(2**31)),
        (3e9, "int8", -1),
        (1e30, "int64", 2**63 - 1),
        (3_000_000_000, "int32", -1_294_967_296),
        (0.5, "boolean", False),
        (float("nan"), "boolean", False),
        (-2, "boolean", True),
        (" true ", "boolean", False),
        (1e300, "float32", float("inf")),
        ("-1e300", "float32", float("-inf")),
        (Decimal("1E+3"), "string", "1E+3"),
    ],
)
def test_cast_narrows_numbers_as_java_does(value: Any, target: str, cast: Any) -> None:
    record = apply("Cast$Value", PLAIN.replace(value=value), spec=target)
    assert record is not None
    assert record.value == cast
    assert type(record.value) is type(cast)


@pytest.mark.parametrize(
    ("value", "target"),
    [("1_000", "int32"), (" 1", "int32"), ("1_0.5", "float64"), ("inf", "float64"), ([1], "string"), ({}, "string")],
)
def test_cast_refuses_what_java_refuses(value: Any, target: str) -> None:
    with pytest.raises(DataError):
        apply("Cast$Value", PLAIN.replace(value=value), spec=target)


def test_cast_of_a_field_that_a_value_without_a_schema_lacks_is_null() -> None:
    record = apply("Cast$Value", PLAIN, spec="missing:string")
    assert record is not None
    assert record.value == {**PLAIN.value, "missing": None}


def test_unix_times_before_1970_are_rounded_towards_zero() -> None:
    for value, given, wanted in ((-1_500, "microseconds", -1), (-1_500_000, "nanoseconds", -1)):
        record = apply(
            "TimestampConverter$Value", PLAIN.replace(value=value), target_type="Timestamp", unix_precision=given
        )
        assert record is not None
        assert record.value == datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(
            milliseconds=wanted
        )
    at = datetime.datetime(1969, 12, 31, 23, 59, 58, 500_000, datetime.UTC)
    record = apply("TimestampConverter$Value", PLAIN.replace(value=at), target_type="unix", unix_precision="seconds")
    assert record is not None
    assert record.value == -1


def test_headers_are_not_taken_from_what_is_missing() -> None:
    settings = {"fields": "nope", "headers": "h", "operation": "move"}
    with pytest.raises(DataError, match="Field does not exist: nope"):
        apply("HeaderFrom$Value", TYPED, **settings)
    for schema in (None, ROW.as_optional()):
        with pytest.raises(DataError, match=r"objects supported.*\[header from\], found: null"):
            apply("HeaderFrom$Value", PLAIN.replace(value=None, value_schema=schema), **settings)
    record = apply("HeaderFrom$Value", PLAIN, **settings)
    assert record is not None
    assert record.headers == (Header("h", None),)


def test_flatten_refuses_maps_and_keeps_defaults_of_nested_structs() -> None:
    inner = struct({"b": INT32, "c": STRING.as_optional()})
    outer = struct({"id": INT32, "inner": replace(inner, optional=True, default=Struct(inner, b=7))})
    record = apply("Flatten$Value", PLAIN.replace(value_schema=outer, value=Struct(outer, id=1)))
    assert record is not None
    assert record.value_schema is not None
    fields = {field.name: (field.schema.optional, field.schema.default) for field in record.value_schema.fields}
    assert fields == {"id": (False, None), "inner.b": (True, 7), "inner.c": (True, None)}
    tags = struct({"tags": mapping(STRING, STRING)})
    with pytest.raises(DataError, match="does not support MAP for record with schemas \\(for field tags\\)"):
        apply("Flatten$Value", PLAIN.replace(value_schema=tags, value=Struct(tags, tags={})))


@pytest.mark.parametrize(
    ("topic", "regex", "replacement", "renamed"),
    [
        ("ab", "a|ab", "X", "Xb"),
        ("abc", "(.)(.)(.)", "$3$2$1", "cba"),
        ("a", "(a)", "$12", "a2"),
        ("abcdefghijkl", "(.)" * 12, "$12", "l"),
        ("a", "(?<first>a)|(b)", "${first}$2!", "a!"),
        ("a", "a", r"\$1\\", "$1\\"),
    ],
)
def test_regex_router_replaces_as_java_does(topic: str, regex: str, replacement: str, renamed: str) -> None:
    record = apply("RegexRouter", PLAIN.replace(topic=topic), regex=regex, replacement=replacement)
    assert record is not None
    assert record.topic == renamed


@pytest.mark.parametrize("replacement", ["$", "$x", "${", "${no}", "$2", "a\\"])
def test_regex_router_refuses_what_java_refuses(replacement: str) -> None:
    with pytest.raises(DataError, match="replacement"):
        apply("RegexRouter", PLAIN, regex="(t)", replacement=replacement)


OPTIONAL_ROW = ROW.as_optional()


@pytest.mark.parametrize(
    ("name", "settings", "optional"),
    [
        ("ReplaceField$Value", {"exclude": "inner"}, False),
        ("InsertField$Value", {"static_field": "s", "static_value": "x"}, False),
        ("Flatten$Value", {}, False),
        ("HeaderFrom$Value", {"fields": "id", "headers": "h", "operation": "move"}, False),
        ("Cast$Value", {"spec": "id:string"}, True),
        ("TimestampConverter$Value", {"field": "name", "target_type": "unix", "format": "yyyy"}, True),
        ("MaskField$Value", {"fields": "id"}, True),
        ("SetSchemaMetadata$Value", {"schema_version": "2"}, True),
    ],
)
def test_schemas_of_changed_structs_are_optional_as_in_kafka_connect(
    name: str, settings: dict[str, str], optional: bool
) -> None:
    row = Struct(OPTIONAL_ROW, id=1, name="2020", inner=Struct(INNER, b=2))
    record = apply(name, PLAIN.replace(value_schema=OPTIONAL_ROW, value=row), **settings)
    assert record is not None
    assert record.value_schema is not None
    assert record.value_schema.optional is optional


@pytest.mark.parametrize(("schema", "kind"), [(OPTIONAL_ROW, "Struct"), (None, "Map")])
def test_a_key_is_not_taken_from_a_value_that_is_null(schema: Schema | None, kind: str) -> None:
    with pytest.raises(DataError, match=rf"Only {kind} objects supported.*copying fields.*found: null"):
        apply("ValueToKey", PLAIN.replace(value=None, value_schema=schema), fields="id")


NESTED = {"a": {"b": 1, "": 2}, "": {"a": 3}, "a.b": 4, "a`b": 5, "a``b": 6, "a`.b": 7}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a.b", 1),
        ("a.", 2),
        ("`a`.", 2),
        (".a", 3),
        ("`a.b`", 4),
        ("a`b", 5),
        ("`a`b`", 5),
        ("`a``b`", 6),
        (r"`a\`.b`", 7),
        (r"`a\`b`", None),
    ],
)
def test_paths_of_fields_are_those_of_kafka_connect(path: str, found: int | None) -> None:
    record = apply("ExtractField$Value", PLAIN.replace(value=NESTED), field=path, field_syntax_version="V2")
    assert record is not None
    assert record.value == found


@pytest.mark.parametrize(("path", "problem"), [("`a", "position 0"), ("a.`b.c", "position 2"), ("", "name a field")])
def test_an_incomplete_path_is_refused_before_the_first_record(path: str, problem: str) -> None:
    transform = load_class("ExtractField$Value")()
    with pytest.raises(ConfigValueError, match=problem):
        transform.configure({"field": path, "field.syntax.version": "V2"})


def test_the_schema_of_a_null_has_the_converted_timestamp() -> None:
    schema = struct({"at": INT64}, optional=True)
    record = apply(
        "TimestampConverter$Value", PLAIN.replace(value=None, value_schema=schema), field="at", target_type="Date"
    )
    assert record is not None
    assert (record.value, record.value_schema) == (None, struct({"at": date_schema()}, optional=True))


@pytest.mark.parametrize(
    ("value", "kind", "replacement", "masked"),
    [
        (7, INT8, "300", 44),
        (7, INT64, "-1.9", -1),
        (7, INT32, "1e3", 1000),
        (7, None, "99999999999999999999", 7_766_279_631_452_241_919),
        (1.5, None, ".5", 0.5),
        (Decimal("1.5"), None, "2.50", Decimal("2.50")),
        ("x", STRING, "1_0", "1_0"),
    ],
)
def test_replacements_of_numbers_are_converted_as_java_does(
    value: Any, kind: Schema | None, replacement: str, masked: Any
) -> None:
    schema = None if kind is None else struct({"f": kind})
    row = {"f": value} if schema is None else Struct(schema, f=value)
    record = apply(
        "MaskField$Value", PLAIN.replace(value=row, value_schema=schema), fields="f", replacement=replacement
    )
    assert record is not None
    assert record.value["f"] == masked
    assert type(record.value["f"]) is type(masked)


@pytest.mark.parametrize("replacement", ["NaN", "1_0", "x", "1e999999999"])
def test_replacements_that_are_no_numbers_are_refused(replacement: str) -> None:
    with pytest.raises(DataError, match="Unable to convert"):
        apply("MaskField$Value", PLAIN, fields="id", replacement=replacement)


def test_masked_fields_that_a_value_without_a_schema_lacks_are_null() -> None:
    record = apply("MaskField$Value", PLAIN, fields="id,missing")
    assert record is not None
    assert record.value == {**PLAIN.value, "id": 0, "missing": None}


def test_cast_of_a_whole_value_keeps_the_name_of_its_schema_unless_it_is_a_logical_type() -> None:
    named = Schema(SchemaType.INT32, name="id", version=2, doc="the id", parameters={"a": "b"})
    record = apply("Cast$Value", PLAIN.replace(value=5, value_schema=named), spec="string")
    assert record is not None
    assert record.value_schema == replace(named, type=SchemaType.STRING)
    date = apply("Cast$Value", PLAIN.replace(value=AT.date(), value_schema=date_schema()), spec="int32")
    assert date is not None
    assert (date.value, date.value_schema) == (18_263, INT32)
