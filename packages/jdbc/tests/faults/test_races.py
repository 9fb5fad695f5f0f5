"""Two drivers write into a table at the same time, and every record lands once. Repeated many times."""

import random
from collections import Counter
from pathlib import Path

import pytest

from lakefeed_local.stack import Endpoints
from packages.jdbc.tests.jdbc_feed import environment_of, ids, pipeline_of
from tests.support.faults.drivers import SHORT_LIVED
from tests.support.faults.races import REPLACED, draw_pauses, run_together, said, two_drivers
from tests.support.feed import Feed
from tests.support.servers.postgresql import PostgreSQL

RECORDS, BATCH = 150, 60


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("rounds", [12])
def test_one_of_two_drivers_started_together_lands_each_record_once(
    stack: Endpoints, postgres: PostgreSQL, tmp_path: Path, rounds: int
) -> None:
    environment = {**environment_of(Feed(stack, tmp_path), postgres), **SHORT_LIVED}
    dice = random.Random(20180208)
    ends: Counter[int] = Counter()
    with two_drivers(environment, tmp_path) as both:
        for number in range(rounds):
            feed, server = Feed(stack, tmp_path), postgres.new_database()
            feed.create_topic(partitions=2)
            feed.send(feed.avro({"id": number, "zone": "z"} for number in range(RECORDS)))
            kafka = {"bootstrap_servers": "${KAFKA_BOOTSTRAP_SERVERS}", "topics": [feed.topic]}
            source = {"kafka": {**kafka, "max_records_per_batch": BATCH}}
            checkpoint = feed.checkpoint if number % 2 else ""
            pipeline = pipeline_of(feed, server, source=source, checkpoint=checkpoint)
            file, apart = tmp_path / f"{feed.name}.yaml", dice.uniform(-1.0, 1.0)
            lost = [each for each in run_together(both, file, draw_pauses(dice), apart=apart) if each is not None]
            ends[len(lost)] += 1
            print(number, checkpoint, lost, flush=True)
            assert len(lost) < 2, lost
            assert all(REPLACED in error for error in lost), lost
            assert ids(server) == list(range(RECORDS))
            assert pipeline.verify(deep=True).faults == ()
    print(dict(ends), f"{said(both, 'tries again')} times a driver has tried again")
    assert ends[1]
