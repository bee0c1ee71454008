"""What a fit knows, as one value, and the functions that make the next one of it."""
