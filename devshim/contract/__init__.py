"""The contract between devshim and an adapter: `Backend`, and the declarations and data classes that it uses."""
