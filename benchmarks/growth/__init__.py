"""Measure how time and memory of the SD-SSM scan grow with length, state size, batch and replicas."""
