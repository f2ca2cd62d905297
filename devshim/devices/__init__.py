"""Devices: their names, what is known about them, and the machine that they belong to."""
