"""Tests in a real browser. As a package, so that its browser is closed when the last of its tests has run."""
