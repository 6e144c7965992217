"""How far sampled convolutions and gradients stray on a graph, and how many vertices they need."""

from fastgcn.diagnose.auto import Choice, choose_samples, resolve_samples
from fastgcn.diagnose.diagnosis import Diagnosis, diagnose
from fastgcn.diagnose.page import diagnosis_page

__all__ = [
    "Choice",
    "Diagnosis",
    "choose_samples",
    "diagnose",
    "diagnosis_page",
    "resolve_samples",
]
