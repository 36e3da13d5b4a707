"""The ONNX files: they compute the policy, whatever the batch, in one file, also with a normaliser that is hard."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from q1pipe.deploy import parity
from q1pipe.deploy.export import OPSET, REFERENCE, save_policy
from q1pipe.motion.clip import Clip
from tests.unit.deploy.conftest import small_policy


def session(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def expected(policy, obs):
    with torch.no_grad():
        return policy(torch.from_numpy(obs)).numpy()


@pytest.mark.parametrize("batch", [1, 7])
def test_any_batch_gives_the_policys_actions(exported, batch):
    obs = np.random.default_rng(0).standard_normal((batch, 119)).astype(np.float32)
    actions = session(exported.onnx).run(["actions"], {"obs": obs})[0]
    assert actions.shape == (batch, 22)
    np.testing.assert_allclose(actions, expected(exported.policy, obs), atol=1e-5)


def test_one_file_of_pinned_opset_without_external_data(exported):
    model = onnx.load(exported.onnx, load_external_data=False)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", OPSET)]
    assert all(t.data_location == onnx.TensorProto.DEFAULT for t in model.graph.initializer)
    assert not list(exported.folder.glob("*.data"))


def test_same_policy_is_the_same_bytes(exported, tmp_path):
    save_policy(tmp_path / "again.onnx", exported.policy, exported.contract())
    assert (tmp_path / "again.onnx").read_bytes() == exported.onnx.read_bytes()


@pytest.mark.parametrize(
    ("obs", "said"),
    [(np.zeros((1, 119)), "double"), (np.zeros((1, 99), np.float32), "Got: 99 Expected: 119")],
)
def test_wrong_input_is_told(exported, obs, said):
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match=said):
        session(exported.onnx).run(["actions"], {"obs": obs})


def test_reference_comes_with_the_action_in_beyondmimics_form(exported):
    run = session(exported.folder / "policy_with_reference.onnx")
    clip, contract = Clip.load(exported.motion), exported.contract()
    assert [i.name for i in run.get_inputs()] == ["obs", "time_step"]
    assert [o.name for o in run.get_outputs()] == ["actions", *REFERENCE]
    obs = np.ones((1, 119), np.float32)
    bodies = [clip.body_names.index(n) for n in contract.body_names]
    for time_step, frame in ((0, 0), (5, 5), (1000, clip.frames - 1)):
        values = run.run(None, {"obs": obs, "time_step": np.array([[time_step]], np.float32)})
        np.testing.assert_allclose(values[0], expected(exported.policy, obs), atol=1e-5)
        for name, value in zip(REFERENCE, values[1:], strict=True):
            want = getattr(clip, name)[[frame]]
            np.testing.assert_array_equal(value, want[:, bodies] if name.startswith("body") else want)
    assert [i.shape for i in run.get_inputs()] == [[1, 119], [1, 1]]
    assert run.get_outputs()[3].shape == [1, len(bodies), 3]
    assert run.get_modelmeta().custom_metadata_map == exported.metadata()


def test_torch_s_exporters_and_their_packages_are_not_used(exported, tmp_path):
    """One of them needs onnxscript, the other is deprecated: with neither, the same bytes."""
    for name in ("onnxscript", "onnx_ir"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not installed')")
    (tmp_path / "run.py").write_text(
        "import sys, torch\n"
        "def never(*args, **kwargs): raise AssertionError('torch.onnx was asked')\n"
        "torch.onnx.export = never\n"
        "from pathlib import Path\n"
        "from q1pipe.deploy.export import save_policy\n"
        "from q1pipe.deploy.contract import Contract\n"
        "from q1pipe.learn import checkpoint\n"
        "from q1pipe.learn.policy import Policy\n"
        "import onnx\n"
        "folder = Path(sys.argv[1])\n"
        "metadata = {p.key: p.value for p in onnx.load(folder / 'policy.onnx').metadata_props}\n"
        "policy = Policy.from_record(checkpoint.load(folder / 'policy.pt')['policy'])\n"
        "save_policy(Path(sys.argv[2]), policy, Contract.read(metadata, ''))\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])}
    command = [sys.executable, str(tmp_path / "run.py"), str(exported.folder), str(tmp_path / "out.onnx")]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.onnx").read_bytes() == exported.onnx.read_bytes()


def test_poisoned_normaliser_is_exported_as_it_is(robot, exported, tmp_path):
    """Mean 1000 in some columns, no variance in another: what a file without the normaliser gets wrong."""
    policy = small_policy(robot)
    policy.normalizer.mean[10:20] = 1e3
    policy.normalizer.var[30] = 0
    save_policy(tmp_path / "policy.onnx", policy, exported.contract())
    obs = np.random.default_rng(1).standard_normal((256, 119)).astype(np.float32)
    obs[:, 10:20] += 1e3
    (found,) = parity.compare([tmp_path / "policy.onnx"], {"real": obs}, {"real": expected(policy, obs)})
    assert found.largest <= 1e-4
    (found,) = parity.compare([exported.onnx], {"real": obs}, {"real": expected(policy, obs)})
    assert found.largest > 1e-2


def test_difference_is_an_error_that_names_the_joint(exported, tmp_path):
    def change(model):
        (bias,) = (t for t in model.graph.initializer if t.name == "layer4_bias")
        values = onnx.numpy_helper.to_array(bias).copy()
        values[7] += 0.5
        bias.CopyFrom(onnx.numpy_helper.from_array(values, bias.name))

    path = exported.changed(tmp_path / "policy.onnx", change)
    obs = np.zeros((3, 119), np.float32)
    differences = parity.compare([path], {"random": obs}, {"random": expected(exported.policy, obs)})
    names = exported.contract().joint_names
    (finding,) = parity.findings(differences, names, 1e-4)
    assert finding.level == "ERROR"
    assert f"0.5 from the policy at {names[7]}, on 3 random" in finding.found
    assert not parity.findings(differences, names, 0.6)


def test_nothing_computed_is_an_error_too(exported):
    difference = parity.Difference("policy.onnx", "real", 1, float("nan"), 0)
    assert parity.findings([difference], exported.contract().joint_names, 1e-4)


def test_layer_without_a_node_is_refused(robot, exported, tmp_path):
    policy = small_policy(robot)
    policy.net[1] = torch.nn.Tanh()
    with pytest.raises(TypeError, match="Tanh"):
        save_policy(tmp_path / "policy.onnx", policy, exported.contract())


def test_stage_records_parity_of_both_files_on_both_sets(exported):
    record = json.loads((exported.folder / "export.json").read_text())
    assert {(d["file"], d["rows"], d["count"]) for d in record["parity"]} == {
        (file, rows, 64) for file in ("policy.onnx", "policy_with_reference.onnx") for rows in ("real", "random")
    }
    assert all(d["largest"] <= 1e-4 for d in record["parity"])
    assert record["metadata"] == exported.metadata()
