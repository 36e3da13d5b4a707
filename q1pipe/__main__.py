"""``python -m q1pipe``: the command line without an installed script."""

from q1pipe.cli import main

main()
