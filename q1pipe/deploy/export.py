"""The policy as ONNX: one self-contained file that any runtime loads, with its contract as metadata.

The graph is written node by node rather than by one of torch's exporters: the TorchScript one is deprecated and trips
over the normaliser's counter, the other needs onnxscript, and both change with torch. The policy is a dozen nodes; the
same policy gives the same bytes under every torch. `parity` compares the file with `Policy.forward` before it counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from q1pipe.deploy.contract import Contract
from q1pipe.files import replacing

OPSET, IR_VERSION = 13, 7  # onnxruntime >= 1.6: also the old ones on robots

REFERENCE = ("joint_pos", "joint_vel", "body_pos_w", "body_quat_w", "body_lin_vel_w", "body_ang_vel_w")


def save_policy(path: Path, policy: nn.Module, contract: Contract) -> None:
    """Write policy.onnx: ``obs`` (N, D) float32 -> ``actions`` (N, J) float32.

    Args:
        path: the file.
        policy: `learn.policy.Policy`: its normaliser, layers and skip connection.
        contract: what it says about itself.
    """
    graph = _Graph("batch")
    graph.policy(policy)
    graph.save(path, contract, "policy", ["obs"], ["actions"])


def save_with_reference(path: Path, policy: nn.Module, contract: Contract, reference: Mapping[str, Any]) -> None:
    """Write policy_with_reference.onnx, the form of BeyondMimic's controllers: the motion is inside.

    Inputs ``obs`` (1, D) and ``time_step`` (1, 1) float32, a frame number; outputs ``actions`` and the reference at
    that frame, the last one beyond the end: ``joint_pos``, ``joint_vel`` (1, J), ``body_pos_w`` … (1, B, 3 or 4), whose
    rows are the contract's body_names. One robot, as there: those controllers make their buffers from the shapes.

    Args:
        path: the file.
        policy: as for `save_policy`.
        contract: what it says about itself.
        reference: arrays by the names in REFERENCE, (T, …) float32.
    """
    graph = _Graph(1)
    graph.policy(policy)
    last = len(reference["joint_pos"]) - 1
    frame = graph.add("Cast", "time_step", to=TensorProto.INT64)
    frame = graph.add("Squeeze", frame, graph.constant("last_axis", np.array([-1])))
    ends = [graph.constant(f"{which}_frame", np.array(value)) for which, value in (("first", 0), ("last", last))]
    frame = graph.add("Clip", frame, *ends)
    for name in REFERENCE:
        table = graph.constant(f"reference_{name}", np.asarray(reference[name], np.float32))
        graph.add("Gather", table, frame, output=name, axis=0)
    graph.save(path, contract, "policy_with_reference", ["obs", "time_step"], ["actions", *REFERENCE])


class _Graph:
    """Nodes and constants in the making, for a number of robots or any, which then has a name."""

    def __init__(self, robots: int | str):
        self.robots = robots
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.shapes: dict[str, list[int | str]] = {"time_step": [robots, 1]}

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """A constant of the graph; its name."""
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """A node; the name of its output."""
        output = output or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=output, **attributes))
        if kind == "Gather":
            self.shapes[output] = [self.robots, *self.constants[inputs[0]].dims[1:]]
        return output

    def policy(self, policy: Any) -> None:
        """obs -> actions, as `Policy.forward`: layers(normalised obs) + (reference - default) · skip gain."""
        shape = policy.shape
        self.shapes |= {"obs": [self.robots, shape.actor], "actions": [self.robots, shape.action]}
        spread = policy.normalizer.var.sqrt() + policy.normalizer.EPS
        x = self.add("Sub", "obs", self.constant("mean", _array(policy.normalizer.mean)))
        x = self.add("Div", x, self.constant("spread", _array(spread)))
        for i, layer in enumerate(policy.net):
            if isinstance(layer, nn.Linear):
                weight = self.constant(f"layer{i}_weight", _array(layer.weight))
                x = self.add("Gemm", x, weight, self.constant(f"layer{i}_bias", _array(layer.bias)), transB=1)
            elif isinstance(layer, nn.ELU):
                x = self.add("Elu", x, alpha=float(layer.alpha))
            else:
                raise TypeError(f"no ONNX node is written here for a layer of type {type(layer).__name__}")
        ends = [("reference_start", shape.reference), ("reference_stop", shape.reference + shape.action), ("axis", 1)]
        reference = self.add("Slice", "obs", *(self.constant(name, np.array([value])) for name, value in ends))
        skip = self.add("Sub", reference, self.constant("default_joint_pos", _array(policy.default_joint_pos)))
        skip = self.add("Mul", skip, self.constant("skip_gain", _array(policy.skip_gain)))
        self.add("Add", x, skip, output="actions")

    def save(self, path: Path, contract: Contract, name: str, inputs: list[str], outputs: list[str]) -> None:
        """Check the graph and write it with its metadata, in one file."""
        ends = [
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in names]
            for names in (inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, name, ends[0], ends[1], initializer=list(self.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        model.producer_name = "q1pipe"
        helper.set_model_props(model, contract.metadata())
        onnx.checker.check_model(model, full_check=True)
        with replacing(path) as temporary:
            temporary.write_bytes(model.SerializeToString(deterministic=True))


def _array(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().cpu().numpy().astype(np.float32)
