"""CuPy behind the contract of `devshim.contract.backend`. `backend.py` combines its mixins."""
