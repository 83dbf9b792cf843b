"""Forecast the failing length of many short trainings, and compare with the measured one."""
