"""Makes the world match the rows."""
