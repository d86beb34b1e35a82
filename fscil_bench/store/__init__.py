"""Results and caches on disk."""
