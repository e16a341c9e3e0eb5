"""`python -m nodrop.cli`: the command line where `nodrop` itself is not on the path."""

from nodrop.cli import main

main()
