"""Copies of CuPy arrays: the implicit transfers that CuPy makes, and the copies that devshim asks for."""
