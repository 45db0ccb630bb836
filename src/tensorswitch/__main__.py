"""``python -m tensorswitch``, for torchrun and for environments whose scripts are not on the path."""

from tensorswitch.cli import main

if __name__ == "__main__":
    main()
