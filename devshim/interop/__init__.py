"""Conversion of tensors between frameworks."""
