"""The command line: click commands, one file each, over the Python API."""
