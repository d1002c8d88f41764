"""Tables as columns of what a study's evidence gives, and one renderer."""
