"""The JAX adapter: it implements the contract of `devshim.contract.backend`. `backend.py` combines its mixins."""
