"""What an adapter needs, under one import path for distributions of their own: the contract and its helpers."""
