"""What a feed's page shows beyond its progress: graph, tables, schemas, dead letters, costs and query panels."""
