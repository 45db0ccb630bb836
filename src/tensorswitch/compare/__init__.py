"""Learning problems, and learners compared on them."""

from tensorswitch.compare._problem import Parts, Problem, load_problem

__all__ = ["Parts", "Problem", "load_problem"]
