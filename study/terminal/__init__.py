"""How commands meet their user: options and help, streams and signals, text that fits the terminal."""
