"""A learning problem, read from a file or a data set."""

from tensorswitch.data import Parts, Problem, load_problem

__all__ = ["Parts", "Problem", "load_problem"]
