"""If the start is refused, the quickstart's error explains what to do."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from lakefeed.errors import RecordsLost
from lakefeed_local.quickstart import Quickstart


def test_the_hint_of_a_refused_start_names_folder_and_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # This happens after ``lakefeed local down --erase``, if the command runs outside of the pipeline file's folder.
    lost = RecordsLost("the topic was recreated", where="lake.quickstart.trips", hint="lakefeed run --accept-loss")
    work = Quickstart(
        tmp_path / "my first", {"KAFKA_BOOTSTRAP_SERVERS": "localhost:1", "SCHEMA_REGISTRY_URL": "http://localhost:1"}
    )
    pipeline = SimpleNamespace(status=lambda: SimpleNamespace(refusal=lost, position=None, partitions=()))
    monkeypatch.setattr(work, "_pipeline", lambda: pipeline)
    with pytest.raises(RecordsLost, match="the topic was recreated") as refused:
        work.land()
    hint = str(refused.value.hint)
    assert "lakefeed quickstart FOLDER" in hint
    assert f"cd '{tmp_path / 'my first'}'; lakefeed run --accept-loss" in hint
