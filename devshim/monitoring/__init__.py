"""Observers of copies: the ledger, the guard, and the metric log."""
