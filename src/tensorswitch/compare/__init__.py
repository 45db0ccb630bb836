"""Learning problems, and learners compared on them."""

from tensorswitch.compare._problem import Problem, load_problem

__all__ = ["Problem", "load_problem"]
