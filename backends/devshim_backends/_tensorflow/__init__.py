"""The TensorFlow adapter: it implements `devshim.contract.backend`. `backend.py` combines its mixins."""
