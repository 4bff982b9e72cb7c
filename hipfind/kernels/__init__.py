"""Sources of device code and their specs: ``hip/*.hip`` (portable C++) and, where matrix cores matter, Triton."""
