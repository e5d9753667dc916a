"""``python -m gpam.attention.backends`` builds compiled attention and measures which backends are fastest here."""

from gpam.attention.backends import calibration
from gpam.attention.backends.compiled import library

print(library.build())
print(calibration.main())
