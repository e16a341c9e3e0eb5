"""How values are spelled in bytes: version 1 of every message, on the wire and at rest."""
