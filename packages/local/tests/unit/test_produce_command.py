"""``topics produce`` refuses contradictory options and missing files before it starts Spark."""

import pytest
from click.testing import CliRunner

from lakefeed.errors import UserError
from lakefeed_local.produce_command import produce


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "either --file or --generate"),
        (["--file", "a.csv", "--generate", "taxi"], "either --file or --generate"),
        (["--generate", "taxi"], "--generate requires --rows"),
        (["--file", "a.csv", "--rows", "3"], "--rows belongs to --generate"),
        (["--generate", "taxi", "--rows", "3", "--stream"], "--stream follows the folder"),
        (["--file", "in/", "--stream"], "--stream requires --checkpoint"),
        (["--file", "in/", "--checkpoint", "c"], "--checkpoint belongs to --stream"),
        (["--file", "a.csv", "--encode", "json", "--subject", "s"], "no meaning with --encode json"),
        (["--file", "a.csv", "--rate", "0"], "--rate is above 0"),
        (["--file", "a.csv", "--bootstrap-servers", "b:1", "--set", "acks"], "not KEY=VALUE"),
        (["--file", "a.csv", "--bootstrap-servers", "b:1", "--header", "=x"], "not KEY=VALUE"),
        (["--file", "a.csv", "--bootstrap-servers", "b:1", "--set", "kafka.acks=0"], "idempotent"),
        (["--file", "a.csv", "--bootstrap-servers", "b:1", "--set", "kafka.lingerms=1"], "unknown Kafka producer"),
        (["--file", "no-folder/*.csv", "--bootstrap-servers", "b:1"], "there is no such file or folder"),
    ],
)
def test_contradictory_options_and_missing_files_are_refused(arguments: list[str], what: str) -> None:
    with pytest.raises(UserError, match=what):
        CliRunner().invoke(produce, ["topic", *arguments], catch_exceptions=False)
