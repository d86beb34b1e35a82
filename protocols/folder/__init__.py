"""A user's own images, in folders or named by a table."""
