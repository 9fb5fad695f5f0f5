"""The dashboard: a feed, or many, in a browser; and the actions of its operators."""
