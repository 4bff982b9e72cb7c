"""hipfind: a MIOpen-style solver framework for convolutions."""
