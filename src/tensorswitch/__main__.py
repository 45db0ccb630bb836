"""``python -m tensorswitch``, for torchrun and environments without scripts on the path."""

from tensorswitch.cli import main

if __name__ == "__main__":
    main()
