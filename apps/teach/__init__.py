"""A page where the library learns what you draw, while you watch: ``python -m apps.teach``."""

from apps.teach.drawings import Frame, draw, embedded_digits, random_drawings
from apps.teach.lesson import Answer, Lesson

__all__ = ["Answer", "Frame", "Lesson", "draw", "embedded_digits", "random_drawings"]
