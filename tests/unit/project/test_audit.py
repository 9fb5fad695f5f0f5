"""The audit has a valid bill of materials, and a decision about each advisory."""

import dataclasses
import json
import re

import pytest

from lakefeed.clients.spark.jars import read_lock
from lakefeed_deploy.image.bill import Component, bill, bundled_jars, jars_of
from tools import audit

OLD = Component("maven", "org.lz4/lz4-java", "1.8.0", "0" * 64, "jars.lock: spark")
NEW = dataclasses.replace(OLD, name="at.yawk.lz4/lz4-java", version="1.11.2")


def test_the_bill_of_materials_is_valid_and_has_hashes() -> None:
    document = json.loads(audit.checked(bill([OLD, NEW, Component("pypi", "click", "8.3.1", None, "uv.lock")])))
    assert document["bomFormat"] == "CycloneDX"
    purls = {each["purl"] for each in document["components"]}
    assert purls == {
        "pkg:maven/org.lz4/lz4-java@1.8.0",
        "pkg:maven/at.yawk.lz4/lz4-java@1.11.2",
        "pkg:pypi/click@8.3.1",
    }
    assert document["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]


def test_an_invalid_bill_is_refused() -> None:
    with pytest.raises(ValueError, match="not valid"):
        audit.checked(bill([dataclasses.replace(OLD, sha256="no hash")]))


def test_an_advisory_applies_only_to_the_versions_that_it_names() -> None:
    advisories = json.loads(audit.ADVISORIES.read_text())
    found = audit.known([OLD, NEW], advisories)
    assert {(each.part, each.accepted) for each in found} == {(OLD, None)}
    assert [each.advisory.partition(" ")[0] for each in found] == [
        "CVE-2025-12183",
        "CVE-2025-66566",
        "CVE-2026-59949",
        "GHSA-6cx8-rjf8-pr8g",
    ]
    bundled = dataclasses.replace(OLD, name="lz4-java", where="pyspark")
    assert all(each.accepted for each in audit.known([bundled], advisories))


def test_each_advisory_names_its_sources() -> None:
    for each in json.loads(audit.ADVISORIES.read_text()):
        assert all(re.fullmatch(r"CVE-\d{4}-\d{4,}|GHSA(-[0-9a-z]{4}){3}", name) for name in each["ids"]), each
        assert each["source"], each
        assert all(source.startswith("https://") for source in each["source"]), each
        assert each["what"], each


def test_each_advisory_about_a_locked_part_is_decided() -> None:
    jars = list(jars_of(read_lock().artifacts))
    packages = list(audit.python_packages(audit.ROOT / "uv.lock"))
    assert len(jars) > 100
    assert len(packages) > 50
    bundled = list(bundled_jars())
    assert len(bundled) > 200
    found = audit.known([*jars, *packages, *bundled], json.loads(audit.ADVISORIES.read_text()))
    assert [each for each in found if each.accepted is None] == []


def test_a_service_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> object:
        raise OSError("no route")

    monkeypatch.setattr(audit, "_json_of", away)
    found, failures = audit.queried([NEW, Component("pypi", "click", "8.3.1", None, "uv.lock")], {})
    assert found == []
    assert [each.partition(" ")[0] for each in failures] == ["OSV", "PyPI"]


def test_vulnerabilities_from_services_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"results": [{"vulns": [{"id": "GHSA-1"}]}, {}], "vulnerabilities": [{"id": "PYSEC-2"}]}
    monkeypatch.setattr(audit, "_json_of", lambda _: answers)
    click = Component("pypi", "click", "8.3.1", None, "uv.lock")
    found, failures = audit.queried([OLD, click], {"PYSEC-2": "not used"})
    assert failures == []
    assert [(each.part, each.advisory, each.accepted) for each in found] == [
        (OLD, "GHSA-1", None),
        (click, "PYSEC-2", "not used"),
    ]
