"""Run ``python -m reproduction``."""

from reproduction.commands import main

if __name__ == "__main__":
    main()
