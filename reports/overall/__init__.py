"""Methods across protocols and representations."""
