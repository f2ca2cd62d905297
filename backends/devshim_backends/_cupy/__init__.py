"""CuPy behind the contract of `devshim.backend`. `backend.py` combines its mixins."""
