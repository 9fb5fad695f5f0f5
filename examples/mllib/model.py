"""A model of prices: trained on a topic, kept in the store, and the function that scores a stream with it."""

from functools import cache

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.ml.regression import LinearRegression
from pyspark.sql import functions as sf

import lakefeed as lf

COLUMNS = {"json": {"schema_ddl": "area DOUBLE, rooms DOUBLE, price DOUBLE"}}


def train(path):
    spark = lf.session("train")
    houses = lf.read_topic(spark, "houses", stream=False, decode=COLUMNS)
    stages = [
        VectorAssembler(inputCols=["area", "rooms"], outputCol="features"),
        LinearRegression(labelCol="price", solver="normal"),
    ]
    Pipeline(stages=stages).fit(houses).write().overwrite().save(path)


@cache
def model(path):
    return PipelineModel.load(path)


def score(offers, path):
    scored = model(path).transform(offers)
    return scored.select("id", "area", "rooms", sf.round("prediction").cast("bigint").alias("price"))


if __name__ == "__main__":
    train("s3a://lake/models/houses")
