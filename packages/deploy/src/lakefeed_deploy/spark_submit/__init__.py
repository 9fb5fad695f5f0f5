"""Deploy a pipeline, with everything that its driver needs, to a cluster."""

PAGE = "deploy-with-spark-submit"
