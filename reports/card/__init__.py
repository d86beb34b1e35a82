"""One method on one page."""
