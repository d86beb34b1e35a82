"""What is measured beside what is published, and what differs between the two."""
