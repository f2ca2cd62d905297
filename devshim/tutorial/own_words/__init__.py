"""Notebooks in a framework's own words: each devshim call becomes the code that a user of the framework writes."""
