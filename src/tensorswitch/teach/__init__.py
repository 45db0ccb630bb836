"""A page where the library learns what you draw, while you watch."""

from tensorswitch.teach.drawings import Frame, draw, embedded_digits, random_drawings
from tensorswitch.teach.lesson import Answer, Lesson
from tensorswitch.teach.serving import serve

__all__ = ["Answer", "Frame", "Lesson", "draw", "embedded_digits", "random_drawings", "serve"]
