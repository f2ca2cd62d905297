"""PaddlePaddle behind the contract of `devshim.contract.backend`; `backend.py` puts the rooms together."""
