"""`nodrop top`: who owes the next move and by when, live in the terminal."""
