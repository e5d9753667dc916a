"""One forward and backward pass of every mechanism on a device that is not the CPU; prints what came of it as JSON.

The device is PyTorch's own means of trying out a backend in Python: its tensors hold tensors of the CPU, on which
every operation is done. As on a GPU, an operation that is given tensors of both devices fails. It cannot be taken back,
so this is a process of its own.
"""

import copy
import json
from types import SimpleNamespace
from typing import Any

from gpam_fairseq.trainer.fast import fast_step

import torch
import toy
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from gpam.attention.registry import names

read = 0  # how often the CPU waited for a number of the device's


class Far(Tensor):
    """A tensor of the device, and the one of the CPU that it holds."""

    @staticmethod
    def __new__(cls, held: Tensor) -> "Far":
        form = {"strides": held.stride(), "dtype": held.dtype, "device": "far:0"}
        far = Tensor._make_wrapper_subclass(cls, held.size(), **form)
        far.held = held
        return far

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return done(operation, args, kwargs or {})


def done(operation: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """``operation`` on what the device's tensors hold."""
    global read
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    far = [tensor for tensor in tensors if isinstance(tensor, Far)]
    near = [tensor for tensor in tensors if not isinstance(tensor, Far) and tensor.dim()]
    copies = operation.overloadpacket in (torch.ops.aten.copy_, torch.ops.aten._to_copy)
    if far and near and not copies:
        raise RuntimeError(f"{operation}: got tensors of two devices, wanted them on one")
    read += operation.overloadpacket is torch.ops.aten._local_scalar_dense
    device = kwargs.get("device") or ("far" if far else "cpu")
    if "device" in kwargs:
        kwargs = {**kwargs, "device": "cpu"}
    found = operation(*tree_map_only(Far, held, args), **tree_map_only(Far, held, kwargs))
    if torch.device(device).type == "cpu":
        return found
    known = {id(tensor.held): tensor for tensor in far}  # changed in their place
    return tree_map_only(Tensor, lambda one: known[id(one)] if id(one) in known else Far(one), found)


def held(tensor: Tensor) -> Tensor:
    return tensor.held


def moved(model: nn.Module) -> nn.Module:
    """A copy of ``model`` on the device."""
    one_each: dict[nn.Parameter, nn.Parameter] = {}
    model = copy.deepcopy(model)
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = one_each.setdefault(parameter, nn.Parameter(Far(parameter.data)))
        for name, buffer in module._buffers.items():
            module._buffers[name] = Far(buffer)
    return model


def one_pass(model: nn.Module, sample: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients."""
    task = SimpleNamespace(target_dictionary=model.decoder.dictionary)
    with fast_step():
        loss = LabelSmoothedCrossEntropyCriterion(task, False, 0.1)(model, sample)[0]
    loss.backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def compared(attention: str) -> dict[str, float]:
    """How far the device's loss and gradients are from the CPU's, and how often the CPU waited for it."""
    arguments = ["--arch", "gpam_iwslt_de_en", "--attention", attention, *toy.sizes("encoder", "decoder")]
    near = toy.build(*arguments, "--encoder-layers", "3", "--decoder-layers", "3").double().eval()
    words = near.decoder.dictionary
    target = toy.padded_batch(words, [9, 5, 7], seed=1)
    source = {"src_tokens": target, "src_lengths": torch.tensor([9, 5, 7]), "prev_output_tokens": target.roll(1, 1)}
    sample = {"net_input": source, "target": target, "ntokens": 21}
    loss, gradients = one_pass(near, sample)
    before = read
    far_loss, far_gradients = one_pass(moved(near), tree_map_only(Tensor, Far, sample))
    waited = read - before
    off = max(float((own - far_gradients[name].held).abs().max()) for name, own in gradients.items())
    return {"loss": abs(float(loss) - float(far_loss)), "gradients": off, "waited": waited}


def main() -> None:
    _setup_privateuseone_for_python_backend("far")
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda operation, *args, **kwargs: done(operation, args, kwargs), "PrivateUse1")
    print(json.dumps({attention: compared(attention) for attention in names()}))


if __name__ == "__main__":
    main()
