"""Every test may use the conformance kit's marks and options."""

pytest_plugins = ["devshim.testing.plugin"]
