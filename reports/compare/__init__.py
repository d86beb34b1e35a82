"""Methods compared pair by pair, and their order across class orders."""
