"""CuPy behind the contract of `devshim.backend`; `backend.py` puts the rooms together."""
