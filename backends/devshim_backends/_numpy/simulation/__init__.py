"""Simulated GPUs for NumPy: arrays with a device, whose memory is counted."""
