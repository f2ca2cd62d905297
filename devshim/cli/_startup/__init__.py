"""A folder that `devshim run` puts on the path of the programs it starts, for its `sitecustomize` alone."""
