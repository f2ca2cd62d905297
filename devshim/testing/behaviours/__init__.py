"""The behaviours that the conformance kit tests on every backend, one module for each table of the contract."""
