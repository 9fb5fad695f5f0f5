"""Details on a feed's page besides its progress: graph, tables, schemas, dead letters, costs, panels."""
