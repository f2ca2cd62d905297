"""Translate a page of devshim calls into the code of one framework: each call becomes what its user would write."""
