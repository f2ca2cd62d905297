"""Which backends there are, which one is current, and how a framework is imported."""
