"""Statistics: what a pass can add up."""
