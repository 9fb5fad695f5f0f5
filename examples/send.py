"""Sends records with keys and null values, which `topics produce` cannot send.

Each line of FILE is JSON: {"key": …, "value": …}.

python examples/send.py TOPIC FILE
"""

import json
import os
import sys
from pathlib import Path

from confluent_kafka import Producer

topic, file = sys.argv[1:]
producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
for line in Path(file).read_text("utf-8").splitlines():
    record = json.loads(line)
    value = None if record["value"] is None else json.dumps(record["value"])
    producer.produce(topic, key=json.dumps(record["key"]), value=value)
producer.flush()
