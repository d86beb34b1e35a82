"""NC-FSCIL: a neck aligned with a fixed simplex of class directions."""
