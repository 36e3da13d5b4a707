"""The texts that go with a package: an issue and a pull request to send along, and whose the clip is."""

from __future__ import annotations

from q1pipe.config import PackageCfg
from q1pipe.report import advice
from q1pipe.report.fill import template
from q1pipe.report.page import settings_yaml
from q1pipe.report.results import Results

METRICS = "success_rate finish_rate mean_rew ep_ret ep_len r_mpkpe mpkpe torque_use torque_peak".split()


def contribution(results: Results, cfg: PackageCfg) -> str:
    """CONTRIBUTION.md: what was changed, how it was measured, and where."""
    return template("contribution.md").render(
        r=results,
        cfg=cfg,
        metrics=METRICS,
        settings=settings_yaml(results.args["train"]),
        reproduce=advice.reproduce(results),
        failed=[gate for gate in results["eval"]["gates"] if not gate["passed"]],
    )


def license_note(results: Results, cfg: PackageCfg) -> str:
    """LICENSE.txt: q1pipe's licence is not the clip's."""
    if cfg.license:
        clip = f"{cfg.license}, as stated by whoever made this package."
    else:
        clip = "not stated. Ask whoever made it before you pass it on; set package.license to state it."
    return (
        f"The clip config/{results['motion']['source']}, and with it motion.npz, the policy, videos and report made"
        f" from it:\n{clip}\n\nq1pipe, and deploy/run_policy.py and check.py, which are files of it: Apache-2.0.\n"
    )
