"""A few changes of customers as Debezium writes them: Avro with an envelope, and a null value after each delete."""

import json
import os

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

TOPIC = "shop.public.customers"
COLUMNS = [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}]
ROW = {"type": "record", "name": "Value", "namespace": "shop", "fields": COLUMNS}
KEY = {"type": "record", "name": "Key", "namespace": "shop", "fields": COLUMNS[:1]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "shop.Value"], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
CHANGES = [("c", 1, "Zurich"), ("c", 2, "Bern"), ("u", 1, "Geneva"), ("d", 2, None), ("c", 3, "Basel")]

registry = SchemaRegistryClient({"url": os.environ["SCHEMA_REGISTRY_URL"]})
of_key = AvroSerializer(registry, json.dumps(KEY))
of_value = AvroSerializer(registry, json.dumps(ENVELOPE))
producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
for at, (op, id_, city) in enumerate(CHANGES):
    key = of_key({"id": id_}, SerializationContext(TOPIC, MessageField.KEY))
    after = None if op == "d" else {"id": id_, "city": city}
    before = {"id": id_, "city": "Bern"} if op == "d" else None
    change = {"before": before, "after": after, "op": op, "ts_ms": 1704110400000 + at}
    producer.produce(TOPIC, key=key, value=of_value(change, SerializationContext(TOPIC, MessageField.VALUE)))
    if op == "d":
        producer.produce(TOPIC, key=key, value=None)
producer.flush()
