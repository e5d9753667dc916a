"""``python -m gpam.attention.backends`` measures which are fastest on this machine."""

from gpam.attention.backends import calibration

print(calibration.main())
