"""Copies between devices: the one path that every copy takes, and the observers that record it."""
