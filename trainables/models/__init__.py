"""Models with exits on their layers, and the rules of these exits."""
