"""Tables that a killed rehearsal has left are found, and the settings of two pipeline files are compared."""

import os
import time
from pathlib import Path

from lakefeed_repair.rehearsal import PREFIX, is_left, own_prefix
from lakefeed_repair.rehearse_command import changed_settings


def test_only_old_tables_and_tables_of_dead_processes_count_as_left_behind() -> None:
    mine = f"{own_prefix()}_new"
    assert mine.startswith(PREFIX)
    assert not is_left(mine)
    assert not is_left("orders")
    assert not is_left(f"{PREFIX}orders")
    pid = next(number for number in range(4_000_000, 2**22) if not os.path.exists(f"/proc/{number}"))
    assert is_left(mine.replace(f"_{os.getpid()}_", f"_{pid}_"))
    elsewhere = f"{PREFIX}{int(time.time())}_00000000_{pid}_abcdef_new"
    assert not is_left(elsewhere)
    assert is_left(elsewhere.replace(f"{int(time.time())}"[:6], "100000", 1))


def test_changed_settings_are_listed_without_secrets(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text("a: {b: 1, key: '${SECRET}'}\nc: [1]\n", "utf-8")
    new.write_text("a: {b: 2, key: '${SECRET}'}\nc: [1]\nd: {}\n", "utf-8")
    assert changed_settings(old, new) == {"a.b": ["1", "2"], "d": [None, "{}"]}
