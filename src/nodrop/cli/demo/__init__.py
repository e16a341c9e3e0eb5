"""`nodrop demo`: a bug report among three agents, played by real processes that are killed on the way."""
