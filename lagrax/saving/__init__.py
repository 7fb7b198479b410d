"""Models as files, and files that are replaced as a whole."""
