"""Run a pipeline by spark-submit on a cluster that has no lakefeed."""

PAGE = "deploy-with-spark-submit"
