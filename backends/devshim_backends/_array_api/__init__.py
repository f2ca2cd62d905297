"""Functions of the array API standard in terms of others, for the adapters of TensorFlow, PaddlePaddle and MXNet.

These frameworks have most functions of the standard natively, under its names or their own. The other ones, and the
rules by which dtypes are promoted, are the same for all three and are here. This package is not an adapter and imports
no framework: it is given a table of native functions, to which it adds (`table.complete`).
"""
