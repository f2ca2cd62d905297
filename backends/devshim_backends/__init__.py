"""The adapters that ship with devshim, one package for each framework. `devshim.registry.registry` loads them by name.

An adapter implements the contract of `devshim.contract.backend` for its framework. The packages use the same names for
files with the same purpose, so that two adapters can be read side by side.
"""
