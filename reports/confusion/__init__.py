"""What is taken for what."""
