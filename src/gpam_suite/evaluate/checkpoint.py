"""A checkpoint back into a model, with a clear word when it is cut off or belongs to another model."""

from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig

from gpam.errors import UsageError


def read_checkpoint(path: Path) -> dict[str, Any]:
    """fairseq's checkpoint, on the CPU.

    Raises:
        UsageError: it is not there, or cut off.
    """
    import gpam_fairseq.compat  # noqa: F401  (before fairseq: its loader takes plain data only)

    # isort: split
    from fairseq import checkpoint_utils

    if not path.is_file():
        raise UsageError(f"no checkpoint at {path}; train first, or name another with evaluation.checkpoint")
    try:
        state = checkpoint_utils.load_checkpoint_to_cpu(str(path))
    except (UsageError, MemoryError):
        raise
    except Exception as error:  # what torch's reader and fairseq's upgrades raise for damaged bytes is no short list
        first_line = " ".join(str(error).split())[:200] or type(error).__name__
        raise UsageError(f"{path} cannot be read, it seems cut off ({first_line}); delete it and train again") from None
    model = state.get("model")
    if not isinstance(model, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in model.values()):
        raise UsageError(f"{path} cannot be read, it holds no model's parameters; delete it and train again")
    return state


def load_model(path: Path, fairseq_config: DictConfig, task: Any) -> torch.nn.Module:
    """The model that ``fairseq_config`` describes with the parameters of the checkpoint at ``path``, for evaluation,
    on the GPU where the configuration uses one.

    Raises:
        UsageError: no such file, a cut-off file, or a checkpoint of another model.
    """
    from gpam_fairseq.config import attention_and_options
    from gpam_fairseq.install import check_attention

    state = read_checkpoint(path)
    model = task.build_model(fairseq_config.model)
    wanted, found = model.state_dict(), state["model"]
    model.upgrade_state_dict(found)
    differing = [name for name in wanted if name not in found or found[name].shape != wanted[name].shape]
    differing += [name for name in found if name not in wanted]
    if differing:
        raise UsageError(
            f"{path} belongs to another model: {len(differing)} parameters differ from the configuration, the first "
            f"is {differing[0]}; evaluate it with the configuration it was trained with"
        )
    model.load_state_dict(found, strict=True)
    check_attention(model, *attention_and_options(fairseq_config.model))
    uses_gpu = torch.cuda.is_available() and not fairseq_config.common.cpu
    return (model.cuda() if uses_gpu else model).eval()
