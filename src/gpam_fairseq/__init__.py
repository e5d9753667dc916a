"""fairseq plugin (``--user-dir src/gpam_fairseq``): every mechanism of ``gpam.attention`` as an attention type."""

import gpam_fairseq.compat
import gpam_fairseq.models
import gpam_fairseq.recall

__all__: list[str] = []
