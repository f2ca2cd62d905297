"""A folder that `devshim run` puts on the path of the programs it starts, only for its `sitecustomize`."""
