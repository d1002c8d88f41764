"""The machines of a study: Ray clusters, nodes, resources."""
