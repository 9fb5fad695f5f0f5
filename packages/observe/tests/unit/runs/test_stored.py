"""The newest traces beside the checkpoint are listed; a store that does not answer is named."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from pydantic import SecretStr

from lakefeed.config.connections import S3
from lakefeed.errors import Unreachable
from lakefeed_observe.runs.settings import runs_of_file
from lakefeed_observe.runs.store import StoredRuns
from lakefeed_testing.schemas import HttpAnswer, HttpRequest, serve_http
from tests.support.pipeline_text import ENVIRONMENT, GOOD, problems

IDS = [f"20260101T{number:06d}Z-abcdef" for number in range(25)]
PAGE = 10


def store_at(port: int) -> S3:
    keys = {"access_key": SecretStr("key"), "secret_key": SecretStr("secret")}
    return S3(endpoint=f"http://127.0.0.1:{port}", region="us-east-1", **keys)


@pytest.fixture
def store() -> Iterator[tuple[S3, list[str]]]:
    """Run a store that lists ten names per response, sorted as in S3, oldest first; one object is not JSON."""
    paths: list[str] = []

    def answer(request: HttpRequest) -> HttpAnswer:
        parts = urlsplit(request.path)
        paths.append(request.path)
        query = parse_qs(parts.query)
        if "list-type" in query:
            prefix, after = query["prefix"][0], query.get("start-after", [""])[0]
            names = [f"{prefix}{run}.json" for run in IDS if f"{prefix}{run}.json" > after]
            keys = "".join(f"<Contents><Key>{name}</Key><Size>20</Size></Contents>" for name in names[:PAGE])
            more = str(len(names) > PAGE).lower()
            body = f"<ListBucketResult><IsTruncated>{more}</IsTruncated>{keys}</ListBucketResult>"
        else:
            run = parts.path.rpartition("/")[2].removesuffix(".json")
            body = "{" if run == IDS[-2] else json.dumps({"run": run, "end": "ended"})
        return HttpAnswer(body=body.encode())

    with serve_http(answer) as url:
        yield store_at(int(url.rpartition(":")[2])), paths


def test_the_newest_20_traces_are_read_and_invalid_traces_are_skipped(store: tuple[S3, list[str]]) -> None:
    s3, paths = store
    found = list(StoredRuns("s3a://lake/checkpoints/taxi feed", s3=s3).traces(known={}))
    assert [trace.run for trace in found][:2] == [IDS[-1], IDS[-3]]
    assert len(found) == 19
    assert sum("list-type" in path for path in paths) == 3


def test_the_error_names_a_store_that_does_not_answer() -> None:
    with pytest.raises(Unreachable, match="the S3 store does not answer") as error:
        list(StoredRuns("s3a://lake/checkpoints/taxi", s3=store_at(1)).traces(known={}))
    assert error.value.where == "s3a://lake/checkpoints/taxi.runs/"


@pytest.mark.parametrize(("written", "keep"), [("no", "no"), ("'no'", "no"), ("checkpoint", "checkpoint")])
def test_keep_accepts_no_with_and_without_quotes(written: str, keep: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(f"{GOOD}runs: {{keep: {written}}}\n")
    config, found = problems(path, environment=ENVIRONMENT)
    assert config is not None, found
    assert runs_of_file(config).keep == keep


def test_keep_checkpoint_is_refused_for_a_feed_without_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(re.sub(r"^checkpoint:.*\n", "", GOOD, flags=re.MULTILINE) + "runs: {keep: checkpoint}\n")
    _, found = problems(path, environment=ENVIRONMENT)
    [problem] = found
    assert "beside the checkpoint, but this feed has no checkpoint" in problem.what
    assert (problem.key, problem.hint) == ("runs", "write keep: local")
