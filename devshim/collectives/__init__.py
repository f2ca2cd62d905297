"""Several devices: splitting, gathering, reducing, and running in parallel."""
