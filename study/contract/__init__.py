"""The rules that every method keeps."""
