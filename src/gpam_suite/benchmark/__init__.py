"""Speed as ratios in one run; a contender whose numbers are wrong gets no time.

A case of ``configs/benchmark.yaml`` has a kind (``gpam_suite.benchmark.kinds``), which makes contenders of it;
``comparison`` checks and times them, ``record`` keeps what came out, and ``page`` makes the table and the figures.
"""

import gpam_fairseq  # noqa: F401  (before torch, for the processor's own matrix products)
