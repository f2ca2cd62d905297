"""Devices in use: queries, the default device, memory and visibility."""
