# /// script
# dependencies = ["lakefeed[spark,pandas]", "marimo", "matplotlib"]
# ///
"""explore.ipynb as a marimo notebook: ``marimo edit explore.py``."""

import marimo

app = marimo.App()


@app.cell
def _():
    import threading
    import time
    from pathlib import Path

    import marimo as mo

    import lakefeed as lf

    spark = lf.session("explore")
    return Path, lf, mo, spark, threading, time


@app.cell
def _(mo):
    mo.md("""
    # Look into a topic

    A sample, its schema, a chart, and SQL over a stream while it runs. The commands on top of `live.yaml` fill the
    topic.
    """)
    return


@app.cell
def _(lf, spark):
    hits = lf.read_topic(
        spark, "visits", stream=False, decode={"json": {"schema": "sample"}, "metadata": ["timestamp"]}
    )
    hits.printSchema()
    sample = hits.limit(20).toPandas()
    sample
    return hits, sample


@app.cell
def _(hits):
    by_zip = hits.groupBy("zip").count().orderBy("zip").toPandas()
    by_zip.plot.bar(x="zip", y="count", legend=False, title="hits by zip code")
    return (by_zip,)


@app.cell
def _(Path, lf, spark, threading):
    # live.yaml counts hits into a view in memory.
    pipeline, stop = lf.Pipeline.from_file(Path(__file__).parent / "live.yaml"), threading.Event()
    running = threading.Thread(target=pipeline.run, kwargs={"spark": spark, "stop": stop})
    running.start()
    return running, stop


@app.cell
def _(running, spark, time):
    # Run this cell repeatedly, and send more hits meanwhile.
    while running.is_alive() and not (spark.catalog.tableExists("hits_live") and spark.table("hits_live").count()):
        time.sleep(0.5)
    totals = spark.sql("SELECT zip, hits FROM hits_live ORDER BY hits DESC, zip").toPandas()
    totals
    return (totals,)


@app.cell
def _(running, stop, totals):
    stop.set()
    running.join()
    len(totals)
    return


if __name__ == "__main__":
    app.run()
