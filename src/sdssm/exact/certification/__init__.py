"""Prove a length up to which a model classifies every valid string correctly."""

from sdssm.exact.certification.certifier import Certificate, certify

__all__ = ["Certificate", "certify"]
