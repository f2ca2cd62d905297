"""The registry of backends: the names that exist, the current backend, and how each framework is imported."""
