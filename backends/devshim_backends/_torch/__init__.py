"""The PyTorch adapter: an implementation of `devshim.contract.backend`, assembled from mixins in `backend.py`."""
