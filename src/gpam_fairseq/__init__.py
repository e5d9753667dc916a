"""fairseq plugin: every mechanism of ``gpam.attention`` as an attention type. Imported before fairseq, or run by
``python -m gpam_fairseq``.
"""

from gpam_fairseq.trainer import products

from gpam.commands import end_by_ctrl_c_while_importing

end_by_ctrl_c_while_importing(__name__)
products.use()  # before torch is loaded

import gpam_fairseq.compat  # noqa: E402
import gpam_fairseq.models  # noqa: E402
import gpam_fairseq.recall  # noqa: E402
import gpam_fairseq.trainer.loading  # noqa: E402

__all__: list[str] = []
