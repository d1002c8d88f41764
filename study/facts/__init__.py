"""The events in a study's journal and the state that follows from them."""
