"""The tests: a package, since a namespace would lose to packages named so that others install."""
