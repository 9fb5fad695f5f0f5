"""Packages from npm's registry are verified at each use; without a network, the error says what to do."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tools import build_page, npm_packages
from tools.npm_packages import NotFetched


def _registry(folder: Path, *, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in build_page.FILES.values():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    place = folder / "uplot" / "-" / "uplot-1.0.0.tgz"
    place.parent.mkdir(parents=True)
    place.write_bytes(packed.getvalue())
    return packed.getvalue()


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a lock, a registry, a cache and an output folder; return the output folder."""
    packed = _registry(tmp_path / "registry", content=b"charts")
    files = {path: npm_packages.integrity(b"charts") for path in build_page.FILES.values()}
    lock = {"uplot": {"version": "1.0.0", "integrity": npm_packages.integrity(packed), "files": files}}
    (tmp_path / "npm.lock").write_text(json.dumps(lock))
    monkeypatch.setattr(npm_packages, "LOCK", tmp_path / "npm.lock")
    monkeypatch.setattr(build_page, "VENDOR", tmp_path / "vendor")
    monkeypatch.setenv("LAKEFEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", (tmp_path / "registry").as_uri() + "/")
    return tmp_path / "vendor"


def test_the_chart_library_is_fetched_once(vendor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    build_page.build(say=said.append)
    assert {path.name: path.read_bytes() for path in vendor.iterdir()} == dict.fromkeys(build_page.FILES, b"charts")
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "file:///nowhere")
    build_page.build(say=said.append)
    (vendor / "uPlot.min.css").write_bytes(b"something else")
    build_page.build(say=said.append)
    assert (vendor / "uPlot.min.css").read_bytes() == b"charts"
    assert ["up to date" in line for line in said] == [False, True, False]


def test_a_file_that_differs_from_the_lock_is_refused(vendor: Path, tmp_path: Path) -> None:
    (tmp_path / "registry" / "uplot" / "-" / "uplot-1.0.0.tgz").write_bytes(b"forged")
    with pytest.raises(NotFetched, match=r"the SHA-512 of .* differs from"):
        build_page.build()
    assert not vendor.exists()


def test_the_error_without_a_network_has_the_next_step(vendor: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npm_packages, "TRIES", 1)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "file:///nowhere")
    with pytest.raises(NotFetched, match=r"file:///nowhere/uplot/-/uplot-1\.0\.0\.tgz cannot be downloaded") as error:
        build_page.build()
    assert "Next: check the network" in str(error.value)


def test_npms_settings_choose_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NPM_CONFIG_REGISTRY", raising=False)
    monkeypatch.delenv("npm_config_registry", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert npm_packages.registry() == npm_packages.REGISTRY
    (tmp_path / ".npmrc").write_text("cache=/x\nregistry = https://npm.example/\n")
    assert npm_packages.url_of("@a/b", "1.0.0") == "https://npm.example/@a/b/-/b-1.0.0.tgz"
