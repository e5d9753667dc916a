"""Data stage: from a ``dataset`` and a ``preprocessing`` node to binarised fairseq data with a manifest.

``prepare(dataset, preprocessing, paths)`` returns a :class:`Prepared`. fairseq is imported only while it runs.
"""

from gpam_suite.data.pipeline import check_same_data, prepare
from gpam_suite.data.prepared import Prepared

__all__ = ["Prepared", "check_same_data", "prepare"]
