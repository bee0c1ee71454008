"""Length-scales that are found: by the evidence of a map, of windows, of each input."""
