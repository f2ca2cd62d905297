"""Make pages and notebooks of a tutorial from its records; nothing here runs the tutorial's code."""
