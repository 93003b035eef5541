"""`python -m counterpoint`, which launchers of several processes start: torchrun -m counterpoint train ..."""

from counterpoint.cli import main

main()
