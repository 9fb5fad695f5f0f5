"""The Grafana dashboard and the alert rules for the metrics."""

PAGE = "metrics"
