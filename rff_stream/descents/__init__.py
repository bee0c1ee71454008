"""The least of a loss over rows: by passes, on features that are kept, and on rows held out."""
