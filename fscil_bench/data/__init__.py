"""Image data: reading, decoding, caching, lists of samples."""
