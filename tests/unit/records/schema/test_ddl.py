"""ALTER statements from the columns of table and rows; tests/integration checks that Iceberg accepts them."""

import json

import pytest
from pyspark.sql import types as t

from lakefeed.clients.iceberg.sql import set_properties
from lakefeed.errors import SchemaIncompatible
from lakefeed.records.schema.changes import Change, renames
from lakefeed.records.schema.ddl import statements
from lakefeed.records.schema.fit import columns_of
from tests.support.avro_documents import field, record

TABLE = "lake.nyc.trips"
ALTER = "ALTER TABLE `lake`.`nyc`.`trips` "


def struct(**fields: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, type_) for name, type_ in fields.items()])


INT, LONG, TEXT = t.IntegerType(), t.LongType(), t.StringType()


def changed(have: t.StructType, want: t.StructType, *changes: Change) -> list[str]:
    made = statements(TABLE, have=have, want=want, changes=changes)
    assert all(each.startswith(ALTER) for each in made)
    return [each.removeprefix(ALTER) for each in made]


def test_rows_that_fit_the_table_need_no_statement() -> None:
    have = struct(a=LONG, b=TEXT)
    assert changed(have, have) == []
    assert changed(have, struct(b=TEXT, a=INT)) == []
    assert changed(have, struct(B=TEXT)) == []


def test_columns_that_are_nullable_or_missing_in_the_rows_become_optional() -> None:
    have = t.StructType(
        [
            t.StructField("gone", INT, False),
            t.StructField("null", t.StructType([t.StructField("x", INT, False)]), False),
            t.StructField("list", t.ArrayType(INT, False)),
        ]
    )
    want = t.StructType(
        [
            t.StructField("null", t.StructType([t.StructField("x", INT, True)]), True),
            t.StructField("list", t.ArrayType(INT, True)),
        ]
    )
    assert changed(have, want) == [
        "ALTER COLUMN `null` DROP NOT NULL",
        "ALTER COLUMN `null`.`x` DROP NOT NULL",
        "ALTER COLUMN `list`.`element` DROP NOT NULL",
        "ALTER COLUMN `gone` DROP NOT NULL",
    ]


def test_renames_come_first_and_later_statements_use_the_new_name_of_the_outer_struct() -> None:
    changes = (Change("renamed", "home", "address", "home"), Change("renamed", "home.zip", "z", "zip"))
    assert changed(struct(address=struct(z=INT)), struct(home=struct(zip=LONG)), *changes) == [
        "RENAME COLUMN `address` TO `home`",
        "RENAME COLUMN `home`.`z` TO `zip`",
        "ALTER COLUMN `home`.`zip` TYPE BIGINT",
    ]
    in_list = Change("renamed", "lines.element.price", "cost", "price")
    lines = struct(lines=t.ArrayType(struct(cost=INT))), struct(lines=t.ArrayType(struct(price=INT)))
    assert changed(*lines, in_list) == ["RENAME COLUMN `lines`.`element`.`cost` TO `price`"]


def test_a_column_that_was_renamed_twice_is_found_by_each_older_name() -> None:
    twice = (Change("renamed", "b", "a", "b"), Change("renamed", "c", "b", "c"))
    assert changed(struct(a=INT), struct(c=INT), *twice) == ["RENAME COLUMN `a` TO `b`", "RENAME COLUMN `b` TO `c`"]
    assert changed(struct(b=INT), struct(c=INT), *twice) == ["RENAME COLUMN `b` TO `c`"]


def test_an_alias_renames_no_column_if_table_or_rows_contradict_it() -> None:
    rename = Change("renamed", "b", "a", "b")
    assert changed(struct(x=INT), struct(x=INT), rename) == []
    assert changed(struct(a=INT, x=INT), struct(x=INT), rename) == []
    assert changed(struct(a=INT), struct(a=INT), rename) == []
    assert changed(struct(a=INT, b=INT), struct(b=INT), rename) == []
    assert changed(struct(x=INT), struct(b=INT, x=INT), rename) == ["ADD COLUMNS (`b` INT)"]


def test_if_grow_is_off_columns_are_widened_and_new_columns_are_refused() -> None:
    have, want = struct(a=INT, s=struct(x=INT)), struct(a=LONG, s=struct(x=LONG))
    assert len(statements(TABLE, have=have, want=want, grow=False)) == 2
    with pytest.raises(SchemaIncompatible, match=r"the table lacks columns that the rows have: s\.y, b"):
        statements(TABLE, have=have, want=struct(s=struct(y=INT), b=INT), grow=False)
    rename = (Change("renamed", "b", "a", "b"),)
    with pytest.raises(SchemaIncompatible, match="the table lacks columns that the rows have: b"):
        statements(TABLE, have=struct(a=INT), want=struct(b=INT), changes=rename, grow=False)


@pytest.mark.parametrize(
    ("have", "want", "words"),
    [
        (struct(a=INT), struct(a=TEXT), "column a is int in the table and string in the rows"),
        (struct(a=INT), struct(a=t.DoubleType()), "column a is int in the table and double in the rows"),
        (
            struct(a=t.ArrayType(struct(b=t.DecimalType(9, 2)))),
            struct(a=t.ArrayType(struct(b=t.DecimalType(12, 3)))),
            "column a.element.b is decimal(9,2) in the table and decimal(12,3) in the rows",
        ),
        (struct(a=t.DateType()), struct(a=t.TimestampType()), "column a is date in the table and timestamp in the"),
        (struct(a=INT), struct(a=struct(b=INT)), "column a is int in the table and struct<b:int> in the rows"),
        (struct(), struct(n=t.CharType(3)), "an Iceberg table has no columns of type char"),
        (struct(), struct(n=t.StringType("UNICODE_CI")), "an Iceberg table has no columns of type string collate"),
        (struct(a=INT), struct(a=INT, A=INT), "the columns a and A differ in case only"),
        (struct(), struct(s=t.ArrayType(struct(x=INT, X=INT))), "s.element.x and s.element.X differ in case only"),
    ],
)
def test_a_change_that_iceberg_does_not_support_is_refused(have: t.StructType, want: t.StructType, words: str) -> None:
    with pytest.raises(SchemaIncompatible) as refused:
        statements(TABLE, have=have, want=want)
    assert words in str(refused.value)


def test_renames_are_found_by_the_aliases_of_the_schema() -> None:
    """After a crash the list of changes is lost; the aliases of the schema and the columns of the table suffice."""
    line = record(field("price", "int", aliases=["cost", "amount"]), field("next", ["null", "Line"]), name="Line")
    reader = json.dumps(record(field("lines", {"type": "array", "items": line}, aliases=["items"]), field("x")))
    expected = columns_of(reader)
    old = struct(items=t.ArrayType(struct(amount=INT, next=TEXT)), x=TEXT)
    assert changed(old, expected, *renames(reader)) == [
        "RENAME COLUMN `items` TO `lines`",
        "RENAME COLUMN `lines`.`element`.`amount` TO `price`",
    ]
    assert changed(expected, expected, *renames(reader)) == []
    half = struct(lines=t.ArrayType(struct(cost=INT, next=TEXT)), x=TEXT)
    assert changed(half, expected, *renames(reader)) == ["RENAME COLUMN `lines`.`element`.`cost` TO `price`"]


def test_names_with_special_characters_are_quoted() -> None:
    odd = struct(**{"a.b`; DROP": INT, "s": struct(**{"x y": INT})})
    assert changed(struct(s=struct(z=INT)), odd) == ["ADD COLUMNS (`a.b``; DROP` INT, `s`.`x y` INT)"]
    assert set_properties(TABLE, {"k": "it's \\ 1"}) == ALTER + "SET TBLPROPERTIES ('k' = 'it\\'s \\\\ 1')"


def test_columns_without_data_are_not_added() -> None:
    """If a column of the rows has no data, the table's column of the same name stays and becomes optional."""
    null = t.NullType()
    empty = struct(n=t.ArrayType(null), s=struct(), m=t.MapType(TEXT, struct(x=null)))
    want = struct(a=INT, n=null, e=empty, p=struct(x=INT, y=empty))
    assert changed(struct(a=INT), want) == ["ADD COLUMNS (`p` STRUCT<`x`: INT>)"]
    required = t.StructType([t.StructField("a", TEXT, nullable=False)])
    assert changed(required, struct(a=empty)) == ["ALTER COLUMN `a` DROP NOT NULL"]
