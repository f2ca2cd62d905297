"""The adapters that ship with devshim, one folder each; `devshim.registry.registry` loads them by name."""
