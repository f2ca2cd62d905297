"""The contract between devshim and an adapter: `Backend`, and what it has beside tensors."""
