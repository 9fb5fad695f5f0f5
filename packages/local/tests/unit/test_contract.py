"""A data contract becomes rules for single records; what is about many records is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakefeed.errors import ConfigError
from lakefeed_local.contract import Rules, read

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "orchestrators"


def contract(folder: Path, *properties: dict[str, Any], **more: Any) -> Rules:
    document = {
        "apiVersion": "v3.1.0",
        "kind": "DataContract",
        "version": "1.0.0",
        "schema": [{"name": "orders", "properties": list(properties), **more}],
    }
    path = folder / "orders.odcs.yml"
    path.write_text(json.dumps(document))
    return read(path, "orders")


def test_the_example_has_the_rules_of_its_contract() -> None:
    rules = read(EXAMPLE / "purchases.odcs.yml", "purchases")
    text = (EXAMPLE / "pipeline.yaml").read_text("utf-8")
    expected = {name: {"rule": rule, "on_violation": "dead_letter"} for name, rule in rules.expect.items()}
    assert yaml.safe_load(text)["expect"] == expected
    assert f"# The rules for single records of {rules.source}." in text
    assert all(f"#   {each}\n" in text for each in rules.left_out)


@pytest.mark.parametrize(
    ("kind", "options", "rule"),
    [
        ("integer", {"minimum": 0}, "`a` >= 0"),
        ("number", {"exclusiveMaximum": 1e-3}, "`a` < 0.001"),
        ("integer", {"multipleOf": 5}, "`a` % 5 = 0"),
        ("string", {"minLength": 2}, "char_length(`a`) >= 2"),
        ("string", {"pattern": r"^\d'$"}, r"`a` RLIKE '^\\d\'$'"),
        ("date", {"minimum": "2020-01-31"}, "`a` >= DATE '2020-01-31'"),
        ("timestamp", {"exclusiveMaximum": "2020-01-31T10:00:00Z"}, "`a` < TIMESTAMP '2020-01-31 10:00:00+00:00'"),
        ("array", {"maxItems": 3}, "size(`a`) <= 3"),
        ("array", {"uniqueItems": True}, "size(array_distinct(`a`)) = size(`a`)"),
    ],
)
def test_an_option_of_a_type_is_a_rule_that_null_meets(
    tmp_path: Path, kind: str, options: dict[str, Any], rule: str
) -> None:
    found = contract(tmp_path, {"name": "a", "logicalType": kind, "logicalTypeOptions": options})
    assert found.expect == {f"a_{next(iter(options))}": f"`a` IS NULL OR {rule}"}
    assert found.left_out == ()


@pytest.mark.parametrize(
    ("check", "rule"),
    [
        ({"metric": "nullValues", "mustBe": 0}, "`a` IS NOT NULL"),
        (
            {"metric": "missingValues", "mustBe": 0, "arguments": {"missingValues": [None, "", "n/a"]}},
            "`a` IS NOT NULL AND `a` NOT IN ('', 'n/a')",
        ),
        (
            {"metric": "missingValues", "mustBe": 0, "arguments": {"missingValues": ["-"]}},
            "`a` IS NULL OR `a` NOT IN ('-')",
        ),
        (
            {"metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": [1, True], "pattern": "x"}},
            "`a` IS NULL OR `a` IN (1, TRUE) AND `a` RLIKE 'x'",
        ),
    ],
)
def test_a_metric_that_no_record_may_have_is_a_rule(tmp_path: Path, check: dict[str, Any], rule: str) -> None:
    assert contract(tmp_path, {"name": "a", "quality": [check]}).expect == {f"a_{check['metric']}": rule}


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        ({"unique": True}, "a: unique"),
        ({"primaryKey": True}, "a: unique"),
        ({"logicalTypeOptions": {"format": "email"}}, "a: format"),
        ({"logicalType": "date", "logicalTypeOptions": {"minimum": "last year"}}, "a: minimum"),
        ({"logicalTypeOptions": {"maximum": float("inf")}}, "a: maximum"),
        ({"quality": [{"metric": "duplicateValues", "mustBe": 0}]}, "a: duplicateValues"),
        ({"quality": [{"metric": "nullValues", "mustBeLessThan": 10}]}, "a: nullValues"),
        ({"quality": [{"type": "sql", "query": "SELECT 1", "mustBe": 1, "name": "one"}]}, "a: one"),
        ({"quality": [{"type": "text", "description": "nice"}]}, "a: text"),
    ],
)
def test_what_is_not_about_a_single_record_is_named(tmp_path: Path, given: dict[str, Any], left_out: str) -> None:
    found = contract(tmp_path, {"name": "a", **given})
    assert (found.expect, found.left_out) == ({}, (left_out,))


def test_a_field_of_a_struct_may_be_missing_with_its_struct(tmp_path: Path) -> None:
    inner = {"name": "zip `code`", "required": True}
    found = contract(
        tmp_path, {"name": "x", "physicalName": "to", "properties": [inner]}, quality=[{"metric": "rowCount"}]
    )
    assert found.expect == {"to_zip__code__required": "`to` IS NULL OR `to`.`zip ``code``` IS NOT NULL"}
    assert found.left_out == ("orders: rowCount",)


def test_two_rules_never_have_the_same_name(tmp_path: Path) -> None:
    found = contract(tmp_path, {"name": "a b", "required": True}, {"name": "a.b", "required": True})
    assert list(found.expect) == ["a_b_required", "a_b_required_2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: DataProduct", "not a data contract of ODCS 3: kind"),
        ("- 1", "not a data contract of ODCS 3"),
        ("a: [", "the contract cannot be read: ParserError"),
        ("{kind: DataContract, apiVersion: v2.2.2, version: 1.0.0, schema: [{name: a}]}", "ODCS 3: apiVersion"),
        (
            "{kind: DataContract, apiVersion: v3.0.2, version: 1.0.0, schema: [{name: a}, {name: b}]}",
            "the contract has no schema named orders: a, b",
        ),
    ],
)
def test_another_document_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "file.yml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / "file.yml", "orders")
    with pytest.raises(ConfigError, match="cannot be read: FileNotFoundError"):
        read(tmp_path / "missing.yml", "orders")
