"""The laws that every model obeys, as checks for models and for test suites."""
