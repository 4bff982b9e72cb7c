"""The version of hipfind, for layers that must not import the package's public names."""

VERSION = "0.1.0"
