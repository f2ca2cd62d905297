"""Programs in several processes, on one machine or on several hosts: `devshim.launch` and `devshim.world`.

Ray is imported only in functions of this package, and by the processes that it starts.
"""
