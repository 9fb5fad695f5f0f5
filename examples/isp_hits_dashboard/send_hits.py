"""Sends hits of web pages for some seconds: zip codes of ten cities, large ones more often.

python examples/isp_hits_dashboard/send_hits.py TOPIC SECONDS
"""

import csv
import json
import os
import random
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

PER_SECOND = 50
topic, seconds = sys.argv[1], float(sys.argv[2])
with (Path(__file__).parent.parent / "data" / "zips.csv").open(encoding="utf-8") as file:
    zips = [row["zip"] for row in csv.DictReader(file)]
weights = [zips.index(code) + 1 for code in zips]
chance = random.Random(7)  # noqa: S311  # The same hits each time.
producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
for number in range(int(seconds * PER_SECOND)):
    hit = {
        "zip": chance.choices(zips, weights)[0],
        "isp": chance.choice(["one", "two", "three"]),
        "hittime": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }
    producer.produce(topic, value=json.dumps(hit))
    producer.poll(0)
    if (number + 1) % PER_SECOND == 0:
        producer.flush()
        time.sleep(1)
producer.flush()
