"""``python -m hipfind`` is the ``hipfind`` command."""

from hipfind.cli.main import main

main(prog_name="hipfind")
