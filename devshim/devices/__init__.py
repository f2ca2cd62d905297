"""Devices: their names, what is known of them, and the machine they are in."""
