"""What a report says, in English and in Chinese, by key."""

from __future__ import annotations

import re

NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Words:
    """The words of one language, as attributes and by key.

    Raises:
        KeyError: there is no such word; also as an attribute, so that a mistyped one does not pass for empty.
    """

    def __init__(self, language: str):
        self.language = language
        self._column = ("en", "zh").index(language)

    def __getitem__(self, key: str) -> str:
        return TABLE[key][self._column]

    def __getattr__(self, key: str) -> str:
        return self[key]

    def phrase(self, text: str) -> str:
        """A phrase of a results file, translated where it is known; # stands for each number of it."""
        shown = self.known(NUMBER.sub("#", text))
        for number in NUMBER.findall(text):
            shown = shown.replace("#", number, 1)
        return shown

    def known(self, key: str) -> str:
        """The word for a key of a results file; the key itself where there is none."""
        return TABLE[key][self._column] if key in TABLE else key


TABLE: dict[str, tuple[str, str]] = {
    # page
    "html_lang": ("en", "zh-CN"),
    "report": ("report", "报告"),
    "theme": ("light / dark", "浅色 / 深色"),
    "log_scale": ("log scale", "对数坐标"),
    "linear_scale": ("linear scale", "线性坐标"),
    "needs_script": ("The charts need JavaScript.", "图表需要启用 JavaScript。"),
    "contents": ("Contents", "目录"),
    # verdict
    "verdict_pass": ("passed", "通过"),
    "verdict_fail": ("not passed", "未通过"),
    "lead_pass": ("All {n} gates are met.", "{n} 项门槛全部满足。"),
    "lead_fail": ("{failed} of {n} gates are not met.", "{n} 项门槛中有 {failed} 项未满足。"),
    "value": ("measured", "实测"),
    "allowed": ("allowed", "要求"),
    "gates_evaluation": ("Evaluation", "评估"),
    "gates_parity": ("ONNX against torch", "ONNX 与 torch 对比"),
    "gates_sim2sim": ("sim2sim: reached the end", "sim2sim：到达终点"),
    "gates_safety": ("Safety", "安全"),
    "nominal": ("undisturbed", "无扰动"),
    "disturbed": ("disturbed", "有扰动"),
    "nominal_note": ("reset noise only", "仅重置噪声"),
    "disturbed_note": ("with observation noise, randomisation and pushes", "含观测噪声、随机化与推力"),
    "metric": ("metric", "指标"),
    "metrics": ("All metrics", "全部指标"),
    "ends": ("How episodes ended", "回合结束原因"),
    "motion_end": ("end of the clip", "到达终点"),
    "time_out": ("time-out", "超时"),
    "anchor_z": ("height", "高度偏离"),
    "tilt": ("tilt", "倾斜"),
    "body_z": ("height of a body", "部件高度偏离"),
    "sim_unstable": ("unstable simulation", "仿真失稳"),
    "success_rate": ("reached the end", "到达终点"),
    "finish_rate": ("and held the final pose", "并保持终止姿态"),
    "mean_rew": ("mean reward", "平均奖励"),
    "ep_ret": ("episode return", "回合回报"),
    "ep_len": ("episode length (steps)", "回合长度（步）"),
    "mpkpe": ("body error, world (m)", "身体误差，世界系（m）"),
    "r_mpkpe": ("body error, relative (m)", "身体误差，相对（m）"),
    "joint_vel_error": ("joint speed error (rad/s)", "关节速度误差（rad/s）"),
    "ee_pos_error": ("end-effector error (m)", "末端位置误差（m）"),
    "ee_ori_error": ("end-effector error (rad)", "末端姿态误差（rad）"),
    "action_rate": ("action change", "动作变化"),
    "torque_use": ("torque used", "力矩使用率"),
    "torque_peak": ("peak torque", "峰值力矩"),
    "soft_limit_use": ("steps beyond soft limits", "超出软限位的步数"),
    "gap_to_evaluate": ("difference from evaluation", "与评估之差"),
    "difference": ("largest difference", "最大差异"),
    "open_loop": ("open loop", "开环"),
    "real": ("real", "真实"),
    "random": ("random", "随机"),
    # rules and worlds, as sim2sim.json has them
    "joints not addressed by a name of the robot": ("joints not addressed by a name of the robot", "名称不符的关节数"),
    "command change at # Hz": ("command change at # Hz", "# Hz 下相邻指令变化"),
    "first target from the measured pose": ("first target from the measured pose", "首个目标与实测姿态之差"),
    "steps that ask for more than the torque limit": (
        "steps that ask for more than the torque limit",
        "要求力矩超限的步数占比",
    ),
    "joint speed": ("joint speed", "关节速度"),
    "beyond hard limits": ("beyond hard limits", "超出硬限位"),
    "targets beyond hard limits": ("targets beyond hard limits", "目标超出硬限位"),
    "steps with a target beyond hard limits": (
        "steps with a target beyond hard limits",
        "目标超出硬限位的步数占比",
    ),
    "steps beyond soft limits": ("steps beyond soft limits", "超出软限位的步数占比"),
    "joint speed after the damping command (#)": (
        "joint speed after the damping command (#)",
        "阻尼指令（#）后的关节速度",
    ),
    "# ms steps": ("# ms steps", "# 毫秒步长"),
    "# ms steps, Euler": ("# ms steps, Euler", "# 毫秒步长，欧拉积分"),
    "ramped targets, # ms": ("ramped targets, # ms", "目标线性插值，# 毫秒"),
    "friction #": ("friction #", "摩擦系数 #"),
    "mass -#%": ("mass -#%", "质量 -#%"),
    "mass +#%": ("mass +#%", "质量 +#%"),
    "strength -#%": ("strength -#%", "电机强度 -#%"),
    "strength +#%": ("strength +#%", "电机强度 +#%"),
    "delay # step": ("delay # step", "延迟 # 步"),
    "delay # steps": ("delay # steps", "延迟 # 步"),
    "observation noise": ("observation noise", "观测噪声"),
    "pushes # m/s": ("pushes # m/s", "推力 # m/s"),
    "slope #°": ("slope #°", "坡度 #°"),
    # videos
    "videos": ("The motion", "动作"),
    "reference_video": ("Reference: the clip that was asked for", "参考：要求的动作"),
    "policy_video": (
        "Policy: what sim2sim measured, the reference as an orange ghost",
        "策略：sim2sim 实测轨迹，橙色半透明为参考",
    ),
    "policy_video_plain": ("Policy: what sim2sim measured", "策略：sim2sim 实测轨迹"),
    "no_video": ("No video", "无视频"),
    "sheet": ("contact sheet", "分镜图"),
    # training
    "training": ("Training", "训练"),
    "chart_learning": ("Return and reward while exploring", "回报与奖励（含探索噪声）"),
    "chart_tests": ("Tests without exploration", "无探索测试"),
    "chart_length": ("Episode length", "回合长度"),
    "chart_tracking": ("Reward terms: tracking", "奖励项：跟踪"),
    "chart_penalties": ("Reward terms: penalties", "奖励项：惩罚"),
    "chart_ends": ("How episodes ended (share)", "回合结束原因（占比）"),
    "chart_lr": ("Learning rate and KL", "学习率与 KL"),
    "chart_std": ("Exploration and value loss", "探索与价值损失"),
    "chart_sps": ("Throughput", "吞吐量"),
    "chart_times": ("Seconds of an iteration", "每次迭代耗时（秒）"),
    "iteration": ("iteration", "迭代"),
    "seconds": ("s", "秒"),
    "lr": ("learning rate", "学习率"),
    "kl": ("KL", "KL"),
    "std": ("std of the actions", "动作标准差"),
    "value_loss": ("value loss", "价值损失"),
    "sps": ("environment steps/s", "环境步/秒"),
    "collect_s": ("collecting", "采样"),
    "update_s": ("learning", "学习"),
    "test_success": ("reaches the end", "到达终点"),
    "test_finish": ("holds the final pose", "保持终止姿态"),
    "test_disturbed": ("holds it when disturbed", "扰动下保持"),
    "phase_falls": ("most fall", "多数跌倒"),
    "phase_reaches": ("most reach the end", "多数到达终点"),
    "phase_holds": ("most hold it when disturbed", "多数在扰动下保持"),
    "published_end": ("end of the published run", "已发表训练的终值"),
    "start_end": ("Start against end", "开始与结束"),
    "start": ("start", "开始"),
    "end": ("end", "结束"),
    "best": ("best", "最佳"),
    "published": ("published run's end", "已发表训练的终值"),
    "passed_after": ("passed it after (environment steps)", "超过它所需环境步"),
    "seeds": ("Seeds: the best model of each", "随机种子：各自的最佳模型"),
    "seed": ("seed", "种子"),
    "score": ("score: return, half where the final pose is not held", "得分：回报，未保持终止姿态的回合减半"),
    "spread": ("lowest – highest", "最低 – 最高"),
    # resources
    "resources": ("What it took", "资源"),
    "wall": ("training time", "训练时长"),
    "device_hours": ("device hours", "设备小时"),
    "env_steps": ("environment steps", "环境步"),
    "iterations": ("iterations", "迭代次数"),
    "device": ("device", "设备"),
    "device_why": ("why this one", "选择原因"),
    "collect_share": ("time spent collecting / learning", "采样 / 学习耗时占比"),
    "kept_model": ("policy is from iteration", "策略来自第几次迭代"),
    # motion
    "motion_check": ("Motion check", "动作检查"),
    "chart_gap": ("Centre of mass outside the support (m)", "质心超出支撑面（m）"),
    "chart_carried": ("Weight that nothing carries", "无支撑的体重"),
    "support_gap": ("outside the support (m)", "超出支撑面（m）"),
    "com_speed": ("speed of the centre of mass (m/s)", "质心速度（m/s）"),
    "carried": ("× body weight", "× 体重"),
    "contacts": ("bodies on the floor", "接地部件数"),
    "findings": ("Findings", "发现"),
    "no_findings": ("Nothing to complain about.", "没有问题。"),
    "doubts": ("To keep in mind", "请注意"),
    "quoted": ("", "以下为程序原文（英文）：级别 [类型] 位置 — 发现 — 允许 — 建议。"),
    "ERROR": ("ERROR", "错误"),
    "WARN": ("WARN", "警告"),
    "INFO": ("INFO", "提示"),
    "clip": ("clip", "片段"),
    "clip_facts": (
        "{frames} frames, {seconds} s at {fps} Hz; the file has {file_fps} Hz",
        "{frames} 帧，{seconds} 秒，{fps} Hz；文件为 {file_fps} Hz",
    ),
    "worst_gap": ("largest gap while slow", "低速时最大偏离"),
    "worst_carried": ("carried by nothing, 95 % of the frames", "无支撑体重，95 % 的帧"),
    "plain_pd": ("plain PD loses it at", "纯 PD 跟丢于"),
    "pd_never": ("never", "从未"),
    "pd_frame": ("frame {frame} ({body})", "第 {frame} 帧（{body}）"),
    "joints": ("Joints", "关节"),
    "joint": ("joint", "关节"),
    "joint_range": ("range of the clip (rad)", "动作范围（rad）"),
    "joint_limits": ("limits (rad)", "限位（rad）"),
    "peak_speed": ("peak speed (rad/s)", "峰值速度（rad/s）"),
    # sim2sim
    "sim2sim": ("sim2sim", "sim2sim"),
    "sim2sim_note": (
        "The exported file in a simulation of its own. Colour: the share; for errors and torque, nominal ÷ value.",
        "导出文件在独立仿真中的表现。颜色：比例本身；误差与力矩为标称值 ÷ 实测值。",
    ),
    "world": ("world", "世界"),
    "episodes": ("episodes", "回合数"),
    "open_loop_note": (
        "Each recorded step of the training done again: largest difference {value} (allowed {allowed}).",
        "逐步重放训练记录：最大差异 {value}（允许 {allowed}）。",
    ),
    "parity": ("Parity", "一致性"),
    "parity_note": ("Actions of the ONNX files against torch.", "ONNX 文件与 torch 的动作对比。"),
    "file": ("file", "文件"),
    "observations": ("observations", "观测"),
    "largest": ("largest difference", "最大差异"),
    "where": ("where", "位置"),
    "safety": ("Safety", "安全"),
    "rule": ("rule", "规则"),
    "unit": ("unit", "单位"),
    "worst": ("worst", "最差处"),
    # lineage
    "lineage": ("Where it comes from", "来源"),
    "lineage_note": ("Hashes are the first 12 hex digits of sha256.", "哈希为 sha256 的前 12 位十六进制。"),
    "made": ("made of", "由其生成"),
    "hash": ("hash", "哈希"),
    "robot": ("robot", "机器人"),
    "run": ("training run", "训练运行"),
    "code": ("Code", "代码"),
    "module": ("module", "模块"),
    "versions": ("Versions", "版本"),
    "package": ("package", "软件包"),
    "trained": ("training", "训练"),
    "evaluated": ("evaluation", "评估"),
    "settings_and_code": ("settings, code", "设置、代码"),
    "settings": ("Settings that differ from the defaults", "与默认不同的设置"),
    "settings_none": ("All training settings are the defaults.", "训练设置均为默认值。"),
    "host": ("trained on", "训练于"),
    # what to do
    "reproduce": ("How to reproduce it", "如何复现"),
    "reproduce_note": (
        "With the same code and settings, on the same kind of device, train.csv comes out bit for bit.",
        "相同代码与设置、同类设备下，train.csv 逐位一致。",
    ),
    "next": ("What to run next", "下一步"),
    "next_package": (
        "Pass it on: package.zip has all of this with a manifest; CONTRIBUTION.md in it is a text to send along.",
        "分享：package.zip 含全部文件与清单，其中 CONTRIBUTION.md 可直接提交。",
    ),
    "next_deploy": (
        "Try it on the robot, hung up first: deploy/README.md.",
        "先吊起机器人再试运行：见 deploy/README.md。",
    ),
    "next_longer": ("It still improves or falls short: train on, from where it stopped.", "继续训练（从停止处接着）。"),
    "next_disturbed": (
        "It does the motion but not under disturbance: that takes the longest to learn; train on.",
        "动作已学会，但扰动下不足：这最耗时，请继续训练。",
    ),
    "next_motion": (
        "The clip asks for what physics cannot give; look at these findings first.",
        "动作要求物理无法实现；请先查看这些发现。",
    ),
    "next_safety": (
        "Do not put it on a robot: a rule of the joint interface is broken (see Safety).",
        "请勿上机：违反关节接口规则（见“安全”）。",
    ),
    "next_sim2sim": (
        "It does not carry over to another simulation: train with wider randomisation.",
        "无法迁移到其他仿真：请加大训练随机化。",
    ),
    "next_seed": ("See how much is luck: another seed.", "换一个随机种子，看运气占多少。"),
    "next_slow": ("Look closely: a second pass in slow motion.", "细看：加一遍慢放。"),
    # index
    "all_motions": ("All motions", "全部动作"),
    "open_report": ("report", "报告"),
    "open_package": ("package", "打包"),
    "no_motions": ("No motion yet: put one into config/.", "还没有动作：请放入 config/。"),
    "made_by": ("made by q1pipe", "由 q1pipe 生成"),
}
