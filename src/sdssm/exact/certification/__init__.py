"""Prove a length up to which a model classifies every valid string correctly."""

from sdssm.exact.certification.certificate import Certificate, Misclassified
from sdssm.exact.certification.certifier import certify

__all__ = ["Certificate", "Misclassified", "certify"]
