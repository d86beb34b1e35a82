"""CEC: continually evolved classifiers."""
