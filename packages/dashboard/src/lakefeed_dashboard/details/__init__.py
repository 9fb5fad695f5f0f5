"""Details that a feed's page shows beyond its progress: graph, tables, schemas, dead letters, costs, panels."""
