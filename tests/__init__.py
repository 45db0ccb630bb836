"""Tests of tensorswitch.

This is a regular package so that spawned processes, which import the test modules by name, find
these modules even if an installed distribution also contains a package called ``tests``.
"""
