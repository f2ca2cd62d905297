"""The adapters that ship with devshim, one folder each; `devshim._registry` loads them by name."""
