"""The folder for Spark's temporary files."""

from pathlib import Path

import pytest

from lakefeed.clients.spark.storage import require_own_folder
from lakefeed.errors import FileDenied


def test_at_least_one_folder_for_temporary_files_must_be_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    (tmp_path / "file").write_text("")
    below, good = tmp_path / "file" / "below", tmp_path / "made" / "here"
    require_own_folder({})
    require_own_folder({"spark.local.dir": f"{below},{good}"})
    assert list(good.iterdir()) == []
    with pytest.raises(FileDenied, match="cannot be written: Not a directory") as refused:
        require_own_folder({"spark.local.dir": str(below)})
    assert refused.value.where == str(below)
    # SPARK_LOCAL_DIRS overrides the setting, because Spark does the same.
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(good))
    require_own_folder({"spark.local.dir": str(below)})
