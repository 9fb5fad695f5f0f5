"""Whole files on this machine's disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lakefeed.clients.local_files import write_whole


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_full_disk_is_named_and_leaves_nothing(
    tmp_path: Path, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as failed:
        write_whole(tmp_path / "lakefeed.json", "{}", overwrite=overwrite)
    assert failed.value.filename == str(tmp_path / "lakefeed.json")
    assert list(tmp_path.iterdir()) == []
