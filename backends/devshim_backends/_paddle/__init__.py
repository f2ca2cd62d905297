"""The PaddlePaddle adapter, an implementation of `devshim.contract.backend`; `backend.py` combines its mixins."""
