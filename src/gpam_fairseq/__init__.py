"""fairseq plugin: every mechanism of ``gpam.attention`` as an attention type. Imported before fairseq, or run by
``python -m gpam_fairseq``.
"""

from gpam_fairseq.trainer import products

from gpam.commands import end_by_ctrl_c_while_importing

end_by_ctrl_c_while_importing(__name__)
products.use()  # before torch is loaded

from gpam_fairseq.compat import fairseqs_store  # noqa: E402

with fairseqs_store():
    import gpam_fairseq.models
    import gpam_fairseq.recall
    import gpam_fairseq.trainer.loading

__all__: list[str] = []
