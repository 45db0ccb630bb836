"""Leave out modules without examples whose optional requirements are not installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("triton") else ["src/tensorswitch/switched/_triton.py"]
