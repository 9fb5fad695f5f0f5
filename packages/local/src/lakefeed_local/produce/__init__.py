"""Read rows from files or generate them, and write them into topics."""

PAGE = "topics"
