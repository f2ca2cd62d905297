"""Copies between devices: the one path that every copy takes, and who observes it."""
