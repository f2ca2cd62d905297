"""Placements: which part of a model or tree belongs on which device, and a plan that fits."""
