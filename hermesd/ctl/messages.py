"""Every text that hermesctl says, in English and in Chinese, side by side.

A text is a format string; `speech.Speech` chooses the language and puts the values in. Both languages
name the same values (a test compares them). This module must never hold logic.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Text(NamedTuple):
    """One text in both languages. A tuple, since some three hundred are made at every start."""

    en: str
    zh: str


# Times and figures
SECONDS: Final = Text("{n} s", "{n} 秒")
MINUTES: Final = Text("{n} min", "{n} 分钟")
HOURS: Final = Text("{n} h", "{n} 小时")
HOURS_MINUTES: Final = Text("{h} h {m} min", "{h} 小时 {m} 分")
DAYS: Final = Text("{n} d", "{n} 天")
DAYS_HOURS: Final = Text("{d} d {h} h", "{d} 天 {h} 小时")
JUST_NOW: Final = Text("just now", "刚刚")
AGO: Final = Text("{span} ago", "{span}前")
IN_SPAN: Final = Text("in {span}", "{span}后")
OVER: Final = Text("over", "已过")
WHEN: Final = Text("{absolute} ({ago})", "{absolute}（{ago}）")

COLON: Final = Text(": ", "：")

# Who does not answer, and what to do about it
NOT_RUNNING: Final = Text(
    "{name} is not running: nobody answers at {socket}", "{name} 没有运行：{socket} 无人应答"
)
LOOK_AT_UNIT: Final = Text(
    "look at it with: systemctl status {unit}; journalctl -u {unit} -n 50",
    "请查看：systemctl status {unit}；journalctl -u {unit} -n 50",
)
NOT_PERMITTED: Final = Text(
    "you may not reach {name} at {socket}: permission denied", "你无权访问 {name}：{socket} 拒绝访问"
)
JOIN_GROUP: Final = Text(
    "operators are members of the group {group}: sudo usermod -aG {group} $USER, then log in again",
    "操作员须属于用户组 {group}：sudo usermod -aG {group} $USER，然后重新登录",
)
TURNED_AWAY: Final = Text(
    "{name} closed the connection at {socket} unanswered: you may not be permitted there, or it stopped",
    "{name} 未作回答就关闭了 {socket} 的连接：可能你没有权限，也可能它刚刚停止",
)
JOIN_OR_LOOK: Final = Text(
    "operators are root and members of the group {group}; if you are one: systemctl status {unit}",
    "操作员是 root 和用户组 {group} 的成员；如果你已是操作员：systemctl status {unit}",
)
NO_ANSWER: Final = Text(
    "{name} takes connections at {socket} but did not answer in time",
    "{name} 接受了 {socket} 的连接，但没有按时回答",
)
NOT_REACHED: Final = Text("{name} cannot be asked: {text}", "无法询问 {name}：{text}")
NO_REASON: Final = Text("it was refused without a reason", "请求被拒绝，未说明原因")
ERROR: Final = Text("error: ", "错误：")
STOPPED_WATCHING: Final = Text(
    "stopped watching; what is under way goes on", "已停止查看；正在进行的操作会继续"
)
INTERNAL: Final = Text("a fault inside hermesctl: {text}", "hermesctl 内部故障：{text}")

# Words of the protocol
RUN_STATUSES: Final = {
    "queued": Text("queued", "排队中"),
    "running": Text("running", "进行中"),
    "waiting": Text("waiting for a person", "等待人工"),
    "paused": Text("paused", "已暂停"),
    "ended": Text("ended", "已结束"),
    "cancelled": Text("cancelled", "已取消"),
    "resumed": Text("resumed", "已恢复"),
}
OUTCOMES: Final = {
    "resolved": Text("resolved", "已解决"),
    "answered": Text("answered", "已回答"),
    "reported": Text("reported, not resolved", "已报告，未解决"),
    "denied": Text("denied by a person", "被人拒绝"),
    "expired": Text("expired: nobody decided", "已过期：无人决定"),
    "plan_changed": Text("stopped: the world changed", "已停止：情况有变"),
    "handed_over": Text("handed over to a person", "已交给人处理"),
    "timed_out": Text("timed out", "超时"),
    "failed": Text("failed", "失败"),
    "cancelled": Text("cancelled", "已取消"),
    "unknown": Text("in doubt: a person must look", "结果存疑：须人工查看"),
}
INCIDENT_STATUSES: Final = {
    "open": Text("open", "未解决"),
    "acknowledged": Text("acknowledged", "已知悉"),
    "resolved": Text("resolved", "已解决"),
}
SEVERITIES: Final = {
    "info": Text("info", "提示"),
    "warning": Text("warning", "警告"),
    "critical": Text("critical", "严重"),
}
RESULTS: Final = {
    "succeeded": Text("succeeded", "成功"),
    "failed": Text("failed", "失败"),
    "refused": Text("refused, not run", "执行前被拒绝"),
    "denied": Text("denied by a person", "被人拒绝"),
    "expired": Text("expired: nobody decided", "已过期：无人决定"),
    "plan_changed": Text("stopped: the world changed", "已停止：情况有变"),
    "undeliverable": Text("nobody could be asked", "无人可问"),
    "taken_over": Text("not run: a person has it", "未执行：已由人接管"),
    "ticketed": Text("waits as a ticket for a person", "已转为人工单"),
    "timed_out": Text("timed out", "超时"),
    "unavailable": Text("unavailable", "不可用"),
    "cancelled": Text("cancelled", "已取消"),
    "unknown": Text("in doubt: a person must look", "结果存疑：须人工查看"),
    "planned": Text("planned, not sent", "已计划，未发出"),
    "sent": Text("sent, no result yet", "已发出，尚无结果"),
}
EFFECTS: Final = {
    "read": Text("read", "只读"),
    "change": Text("change", "更改"),
    "destroy": Text("destroy", "删除"),
    "send": Text("send", "外发"),
}
PERMISSIONS: Final = {
    "public": Text("public", "公开"),
    "internal": Text("internal", "需确认"),
    "confidential": Text("confidential", "仅人工"),
}
STAGES: Final = {
    "receive": Text("receive", "接收"),
    "brief": Text("brief", "汇总"),
    "plan": Text("plan", "计划"),
    "validate": Text("validate", "校验"),
    "confirm": Text("confirm", "确认"),
    "prepare": Text("prepare", "准备"),
    "execute": Text("execute", "执行"),
    "review": Text("review", "复核"),
    "report": Text("report", "报告"),
}
STAGE_OUTCOMES: Final = {
    "ok": Text("ok", "正常"),
    "refused": Text("refused", "拒绝"),
    "failed": Text("failed", "失败"),
    "timeout": Text("timed out", "超时"),
    "cancelled": Text("cancelled", "取消"),
}
SOURCE_STATES: Final = {
    "running": Text("running", "运行中"),
    "waiting": Text("died, will be restarted", "已中断，等待重启"),
    "halted": Text("stopped until a reload", "已停止，重新加载后再启动"),
    "off": Text("off", "已关闭"),
}
RUN_KINDS: Final = {
    "event": Text("event", "事件"),
    "schedule": Text("schedule", "定时"),
    "person": Text("person", "人工"),
}

# status
DAEMON: Final = Text("daemon", "守护进程")
EXECUTOR: Final = Text("executor", "执行器")
SANDBOX: Final = Text("sandbox", "沙箱")
DEGRADED: Final = Text("degraded", "降级")
SEPARATION: Final = Text("separation", "隔离")
SOURCES: Final = Text("sources", "来源")
INBOX: Final = Text("inbox", "收件箱")
INCIDENTS: Final = Text("incidents", "事故")
RUNS: Final = Text("runs", "运行")
APPROVALS: Final = Text("approvals", "待批准")
MODEL: Final = Text("model", "模型")
AUDIT: Final = Text("audit", "审计")
CONFIG: Final = Text("config", "配置")
ALL_WELL: Final = Text("hermesd is well", "hermesd 一切正常")
NOT_KNOWN: Final = Text("not known", "未知")
READY: Final = Text("ready", "就绪")
STARTING: Final = Text("starting, not ready yet", "启动中，尚未就绪")
PAUSED: Final = Text("paused: no new runs start", "已暂停：不启动新的运行")
DAEMON_LINE: Final = Text(
    "{state}, version {version}, pid {pid}, up {up}", "{state}，版本 {version}，pid {pid}，已运行 {up}"
)
EXECUTOR_LINE: Final = Text("answers, {commands} commands", "应答正常，{commands} 个命令")
SANDBOX_GOOD: Final = Text("{name}: {reason}", "{name}：{reason}")
SANDBOX_NONE: Final = Text("none usable, nothing is executed", "没有可用的沙箱，不会执行任何命令")
ENGINE: Final = Text("{name}: {reason}", "{name}：{reason}")
SOURCE_LINE: Final = Text(
    "{source} {state} for {span}, {last}",
    "{source} {state}，已 {span}，{last}",
)
SOURCE_KIND: Final = Text("{name} ({kind})", "{name}（{kind}）")
SOURCE_OFF: Final = Text("{source} {state}", "{source} {state}")
SOURCE_DEAD: Final = Text("{source} {state}, died {n} times", "{source} {state}，已中断 {n} 次")
SOURCE_REVIVED: Final = Text("died {n} times: {error}", "已中断 {n} 次：{error}")
LAST_EVENT: Final = Text("last event {ago}", "最近事件 {ago}")
NO_EVENT: Final = Text("no event yet", "尚无事件")
NO_SOURCES: Final = Text("none is configured", "没有配置来源")
INBOX_LINE: Final = Text(
    "{undecided} undecided of {accepted} accepted", "{undecided} 条待判定，共接收 {accepted} 条"
)
OPEN_LINE: Final = Text("{n} open", "{n} 起未解决")
ACTIVE_LINE: Final = Text("{n} active", "{n} 个进行中")
PENDING_NONE: Final = Text("none waits for a person", "没有等待人工的操作")
PENDING_MORE: Final = Text("and {n} more: hermesctl approvals", "另有 {n} 项：hermesctl approvals")
PENDING_LINE: Final = Text("{text}, expires {left}", "{text}，{left}过期")
TYPE_NEXT: Final = Text("→ hermesctl approve {id}", "→ hermesctl approve {id}")
MODEL_LINE: Final = Text("{name}, {state}", "{name}，{state}")
MODEL_NONE: Final = Text("none configured: runbooks alone", "未配置：仅使用预案")
AUDIT_LINE: Final = Text(
    "{agent} records of the daemon, {executor} of the executor",
    "守护进程 {agent} 条，执行器 {executor} 条",
)
CONFIG_LINE: Final = Text("{config}, policy {policy}", "{config}，策略 {policy}")
BAD_SANDBOX: Final = Text(
    "no usable sandbox, so nothing is executed: {reason}", "没有可用的沙箱，因此不会执行任何命令：{reason}"
)
BAD_NOT_READY: Final = Text("hermesd is starting and not ready yet", "hermesd 正在启动，尚未就绪")
BAD_SOURCE: Final = Text("source {name} {state}: {error}", "来源 {name} {state}：{error}")
BAD_LINK: Final = Text(
    "hermesd cannot reach the executor, so runs cannot look at anything",
    "hermesd 无法连接执行器，运行无法查看任何东西",
)
WARN_PAUSED: Final = Text(
    "new runs are paused; go on with: hermesctl resume", "新的运行已暂停；恢复请输入：hermesctl resume"
)
WARN_DEGRADED: Final = Text(
    "the sandbox keeps fewer promises than it could, see below", "沙箱未能提供全部保障，见下"
)
IN_HANDS: Final = Text("in hands", "人工处理")
IN_HANDS_LINE: Final = Text(
    "{targets}: only looked at until `hermesctl release`", "{targets}：在 hermesctl release 之前只查看"
)
TICKETS: Final = Text("tickets", "工单")
TICKETS_LINE: Final = Text("{n} wait: hermesctl queue list", "{n} 个待处理：hermesctl queue list")
WARN_TOOL: Final = Text("a tool's file is left out: {fault}", "工具文件未被采用：{fault}")
WARN_MODEL: Final = Text("the model does not answer as it should: {model}", "模型应答异常：{model}")
WARN_POLICY: Final = Text(
    "the daemon and the executor have read different policies ({agent}, {executor})",
    "守护进程和执行器读取的策略不同（{agent}，{executor}）",
)

# Lists
ID: Final = Text("ID", "编号")
TITLE: Final = Text("TITLE", "标题")
STATE: Final = Text("STATE", "状态")
SEVERITY: Final = Text("SEVERITY", "级别")
OPENED: Final = Text("OPENED", "开始")
VALUE: Final = Text("VALUE", "数值")
GOAL: Final = Text("GOAL", "目标")
CREATED: Final = Text("CREATED", "创建")
COMMAND: Final = Text("COMMAND", "命令")
IMPACT: Final = Text("WHAT IT WOULD DO", "将会做什么")
EXPIRES: Final = Text("EXPIRES", "过期")
EFFECT: Final = Text("EFFECT", "作用")
PERMISSION: Final = Text("PERMISSION", "权限")
DESCRIPTION: Final = Text("DESCRIPTION", "说明")
ARGUMENT: Final = Text("ARGUMENT", "参数")
NO_INCIDENTS: Final = Text(
    "no open incidents (hermesctl incidents --all shows all)",
    "没有未解决的事故（hermesctl incidents --all 显示全部）",
)
NO_INCIDENTS_EVER: Final = Text("no incidents", "没有事故")
NO_RUNS: Final = Text("no runs", "没有运行")
NO_APPROVALS: Final = Text("nothing waits for a person", "没有等待人工的操作")
HOW_TO_APPROVE: Final = Text(
    "see one and decide: hermesctl approve {id}", "查看并决定：hermesctl approve {id}"
)
NO_COMMANDS: Final = Text("the catalogue is empty", "命令目录为空")
NO_SUCH_COMMAND: Final = Text(
    "there is no command {name}; hermesctl commands lists them",
    "没有命令 {name}；hermesctl commands 列出全部",
)
UNUSABLE: Final = Text("not usable: {reason}", "不可用：{reason}")
REACH: Final = Text("may read beneath", "可读范围")
REACH_WRITE: Final = Text("may change beneath", "可改范围")
TIME_LIMIT: Final = Text("time limit", "时限")
ARGUMENTS: Final = Text("arguments", "参数")
NO_ARGUMENTS: Final = Text("none", "无")
DEFAULT: Final = Text("default {value}", "默认 {value}")
REQUIRED: Final = Text("required", "必填")
EXAMPLES: Final = Text("for example {values}", "例如 {values}")
ONE_OF: Final = Text("one of {values}", "可选 {values}")
LEAST: Final = Text("at least {value}", "最小 {value}")
MOST: Final = Text("at most {value}", "最大 {value}")
SCENES: Final = Text("scenes", "场景")
PROGRAM: Final = Text("runs", "执行")
PREVIEWED_BY: Final = Text("previewed by", "预览命令")
FALLBACK: Final = Text("instead of it", "备用命令")
BESIDE: Final = Text("beside others", "并行")
BESIDE_YES: Final = Text("may run while others do", "可与其他命令同时执行")
BESIDE_NO: Final = Text("runs alone in its turn", "须依次单独执行")
AGAIN: Final = Text("asked again", "重试")
AGAIN_YES: Final = Text("may be asked again when it failed for a passing reason", "因暂时原因失败时可以重试")
AGAIN_NO: Final = Text("is not tried again by itself", "不会自动重试")
PRIORITY: Final = Text("priority", "优先级")

# show
INCIDENT_HEAD: Final = Text("Incident {id}: {title}", "事故 {id}：{title}")
RUN_HEAD: Final = Text("Run {id}", "运行 {id}")
L_STATE: Final = Text("state", "状态")
L_RULE: Final = Text("rule", "规则")
L_SEVERITY: Final = Text("severity", "级别")
L_LABELS: Final = Text("labels", "标签")
L_OPENED: Final = Text("opened", "开始")
L_RESOLVED: Final = Text("resolved", "解决")
L_EVENTS: Final = Text("events", "事件")
L_RUNS: Final = Text("runs", "运行")
L_GOAL: Final = Text("goal", "目标")
L_REASON: Final = Text("reason", "原因")
L_STARTED: Final = Text("started", "开始")
L_ENDED: Final = Text("ended", "结束")
L_KIND: Final = Text("started by", "起因")
L_INCIDENT: Final = Text("incident", "事故")
EVENTS_LINE: Final = Text("{n}, last value {value}", "{n} 次，最近数值 {value}")
SEE_RUN: Final = Text("hermesctl show {id}", "hermesctl show {id}")
TIMELINE: Final = Text("Timeline", "时间线")
ROUND: Final = Text("round {n}", "第 {n} 轮")
OF_BUDGET: Final = Text("of {budget}", "限 {budget}")
STAGE_NOW: Final = Text("now in {stage}", "目前在：{stage}")
REPORT: Final = Text("Report", "报告")
RECORDS: Final = Text(
    "{n} audit records (hermesctl show {id} --records)", "{n} 条审计记录（hermesctl show {id} --records）"
)
RECORDS_HEAD: Final = Text("Audit records", "审计记录")
GAIN: Final = Text("{files} files removed, {size} freed", "删除 {files} 个文件，释放 {size}")
GAIN_SKIPPED: Final = Text(
    "{files} files removed, {skipped} skipped, {size} freed",
    "删除 {files} 个文件，跳过 {skipped} 个，释放 {size}",
)

# approve
NEEDS_TERMINAL: Final = Text(
    "approving needs a person at a terminal: standard input and output must both be one",
    "批准须由人在终端完成：标准输入和标准输出都必须是终端",
)
NO_FLAG: Final = Text(
    "no flag and no pipe replaces reading what would be done and typing the token; nothing was done",
    "没有任何选项或管道能代替阅读内容并输入口令；什么也没有做",
)
NO_JSON: Final = Text("approve is a conversation and has no --json", "approve 是对话，没有 --json")
OPERATION: Final = Text("Operation {id}", "操作 {id}")
L_COMMAND: Final = Text("command", "命令")
L_ASKED_BY: Final = Text("asked by", "请求者")
ASKED_BY_RUN: Final = Text("run {task}", "运行 {task}")
L_INTENT: Final = Text("its words", "它的说法")
L_ARGS: Final = Text("arguments", "参数")
L_FILES: Final = Text("files", "文件")
MORE_FILES: Final = Text("and {n} more", "另有 {n} 个")
L_IMPACT: Final = Text("would do", "将会")
L_ROOT: Final = Text("beneath", "位于")
L_UNDO: Final = Text("undo", "撤销")
UNDO_YES: Final = Text("possible", "可以撤销")
UNDO_FOR: Final = Text(
    "possible for {n} h afterwards: hermesctl undo {id}", "完成后 {n} 小时内可以撤销：hermesctl undo {id}"
)
UNDO_LATER: Final = Text("undo it: hermesctl undo {id}", "撤销：hermesctl undo {id}")
UNDO_NO: Final = Text("NOT possible: what is done stays done", "不可撤销：做了就无法恢复")
UNDO_NO_WHY: Final = Text(
    "NOT possible: what is done stays done ({why})", "不可撤销：做了就无法恢复（{why}）"
)
UNDO_WHY: Final = {
    "helper": Text("it is removed as root, which keeps no copy", "由 root 助手删除，不保留副本"),
    "denied": Text("its way back is not permitted here", "此处不允许恢复操作"),
    "missing": Text("the quarantine's folder cannot be used", "隔离区目录不可用"),
    "same": Text(
        "the quarantine is on the same file system: nothing would be freed",
        "隔离区与被清理目录在同一文件系统上，无法释放空间",
    ),
    "too_large": Text("it is more than the quarantine may hold", "超过隔离区允许的总量"),
    "full": Text("the quarantine holds too much from before", "隔离区中先前保留的内容过多"),
    "no_room": Text("the quarantine's file system has too little room", "隔离区所在文件系统空间不足"),
}
L_VALID: Final = Text("valid", "有效期")
VALID: Final = Text("{n} s, until {at}", "{n} 秒，至 {at}")
L_TOKEN: Final = Text("token", "口令")
TYPE_TOKEN: Final = Text(
    "Type the token to approve, anything else denies: ", "输入上面的口令表示批准，输入其他任何内容则不批准："
)
L_WORD: Final = Text("word", "确认词")
SECOND: Final = Text(
    "This cannot be undone or needs a second look: type the word above alone on its own line.",
    "此操作不可撤销或需要再次确认：请单独输入上面的确认词。",
)
TYPE_WORD: Final = Text("Type the word: ", "输入确认词：")
NOTHING_DONE: Final = Text(
    "Nothing was done. The operation still waits for a person.", "什么也没有做。该操作仍在等待人工决定。"
)
DECIDE_LATER: Final = Text(
    "see it again: hermesctl approve {id}; say no: hermesctl deny {id}",
    "再次查看：hermesctl approve {id}；拒绝：hermesctl deny {id}",
)
NOT_APPROVED: Final = Text("not approved: {reason}", "未批准：{reason}")
APPROVED: Final = Text("Approved. Doing it now.", "已批准，正在执行。")
STAGE_BEGINS: Final = Text("{stage} ...", "{stage}……")
ENDED_AS: Final = Text("ended: {outcome}", "结果：{outcome}")
ENDED_WHY: Final = Text("ended: {outcome}: {text}", "结果：{outcome}：{text}")
NOT_SEEN_END: Final = Text(
    "It was approved, but how it ended was not seen: hermesctl show {task}",
    "已批准，但没有看到结果：hermesctl show {task}",
)
PREVIEWING: Final = Text("Looking at what it would do ...", "正在查看它将会做什么……")
DENIED: Final = Text("{id}: denied; nothing was done", "{id}：已拒绝；什么也没有做")

# steering
RUN_NOW: Final = Text("{id}: {status}", "{id}：{status}")
ALL_PAUSED: Final = Text(
    "no new runs start until: hermesctl resume", "在 hermesctl resume 之前不启动新的运行"
)
ALL_RESUMED: Final = Text("new runs start again", "重新开始启动新的运行")
RELOADED: Final = Text("configuration {digest} is in force", "配置 {digest} 已生效")
NOT_RELOADED: Final = Text(
    "the new configuration is wrong; the old one stays in force", "新配置有误；旧配置继续有效"
)
ASKED: Final = Text("run {task}", "运行 {task}")
FOLLOW_WITH: Final = Text("follow it: hermesctl follow {task}", "查看进展：hermesctl follow {task}")
FOLLOW_END: Final = Text("{task}: {outcome}", "{task}：{outcome}")
EMPTY_QUESTION: Final = Text("the question is empty", "问题为空")
VERSION: Final = Text("{name} {version}", "{name} {version}")
VERSION_UNKNOWN: Final = Text("{name}: does not answer", "{name}：没有应答")

# audit verify
VERIFIED: Final = Text("audit verified, {n} records", "审计已验证，{n} 条记录")
NOT_VERIFIED: Final = Text("audit NOT verified", "审计未通过验证")
PARTLY_VERIFIED: Final = Text(
    "audit only partly verified: one log could not be asked for", "审计只验证了一部分：有一份日志无法读取"
)
LOG_GOOD: Final = Text("{n} records, head {head}", "{n} 条记录，末尾 {head}")
LOG_ANCHORED: Final = Text(
    "holds record {seq}, which the other process saw", "包含另一进程见过的第 {seq} 条记录"
)
LOG_UNANCHORED: Final = Text(
    "the other process has not seen a record of it yet: a cut tail would not show",
    "另一进程尚未见过其记录：如末尾被截断将无法发现",
)
LOG_BAD: Final = Text("first bad record {seq}: {reason}", "第一条损坏的记录 {seq}：{reason}")
LOG_BAD_UNPLACED: Final = Text("{reason}", "{reason}")
LOG_TAIL: Final = Text("missing tail: records {first} to {last}", "缺失的末尾：记录 {first} 至 {last}")

# Help
HELP: Final = Text(
    "Steer hermesd: see what it does, decide what it may do.",
    "操作 hermesd：查看它在做什么，决定它可以做什么。",
)
HELP_STATUS: Final = Text("Show how both processes stand, faults first.", "显示两个进程的状态，问题在前。")
HELP_INCIDENTS: Final = Text("List open incidents.", "列出未解决的事故。")
HELP_RUNS: Final = Text("List runs, newest first.", "列出运行，最新在前。")
HELP_SHOW: Final = Text("Show an incident or a run as a timeline.", "以时间线显示一起事故或一次运行。")
HELP_APPROVALS: Final = Text("List operations that wait for a person.", "列出等待人工决定的操作。")
HELP_APPROVE: Final = Text(
    "See what an operation would do; type its token to approve.",
    "查看操作将会做什么，输入口令批准。",
)
HELP_DENY: Final = Text("Say no to an operation.", "拒绝一项操作。")
HELP_PAUSE: Final = Text(
    "Pause a run; without ID, the starting of new runs.", "暂停一次运行；不带编号则暂停启动新的运行。"
)
HELP_RESUME: Final = Text(
    "Resume a run; without ID, the starting of new runs.", "恢复一次运行；不带编号则恢复启动新的运行。"
)
HELP_CANCEL: Final = Text("Cancel a run.", "取消一次运行。")
HELP_ASK: Final = Text(
    "Ask hermesd to look at something, and follow the run.", "请 hermesd 查看某事，并跟随这次运行。"
)
HELP_FOLLOW: Final = Text("Follow a run until it ends.", "跟随一次运行直到结束。")
HELP_COMMANDS: Final = Text(
    "List what the executor can run, or show one command.", "列出执行器能运行的命令，或显示其中一个。"
)
HELP_RELOAD: Final = Text("Read the configuration again.", "重新读取配置。")
HELP_AUDIT: Final = Text("The audit logs.", "审计日志。")
HELP_AUDIT_VERIFY: Final = Text("Prove that both audit logs are whole.", "验证两份审计日志完整无缺。")
HELP_VERSION: Final = Text("Show versions.", "显示版本。")
OPT_JSON: Final = Text("One JSON document on standard output.", "在标准输出给出一个 JSON 文档。")
OPT_CONTROL: Final = Text("Socket of hermesd.", "hermesd 的套接字。")
OPT_OPERATOR: Final = Text("Socket of hermesd-executor.", "hermesd-executor 的套接字。")
OPT_LANG: Final = Text("Language; default from the locale.", "语言；默认取自区域设置。")
OPT_TIMEOUT: Final = Text("Seconds to wait for an answer.", "等待回答的秒数。")
OPT_HELP: Final = Text("Show this message and exit.", "显示此说明并退出。")
OPT_ALL: Final = Text("Resolved ones too.", "包括已解决的。")
OPT_LIMIT: Final = Text("At most so many.", "最多显示多少条。")
OPT_INCIDENT: Final = Text("Only runs of this incident.", "只列出这起事故的运行。")
OPT_RECORDS: Final = Text("Print the audit records.", "显示审计记录。")
OPT_REASON: Final = Text("Why, for the record.", "原因，写入记录。")
OPT_FOLLOW: Final = Text("Follow the run (default) or only start it.", "跟随运行（默认）或只启动。")
EPILOG: Final = Text(
    "The options above may also stand behind the command.\n\n"
    "\b\nExit codes:\n"
    "  0    done, healthy, verified\n"
    "  1    the thing asked about is bad: something is wrong (status),\n"
    "       not verified (audit verify), the operation did not succeed (approve),\n"
    "       the run was not successful (ask, follow), a wrong configuration (reload)\n"
    "  2    the command line or the request was not understood\n"
    "  3    hermesd or hermesd-executor is not running or cannot be reached\n"
    "  4    refused: not permitted, a wrong token, nothing approved\n"
    "  5    there is no such incident, run, operation or command\n"
    "  130  interrupted while watching    141  the reader of the output went away\n\n"
    "\b\nEnvironment:\n"
    "  HERMESD_CONTROL_SOCKET, HERMESD_OPERATOR_SOCKET, LC_ALL, LANG, NO_COLOR",
    "以上选项也可以写在命令之后。\n\n"
    "\b\n退出码：\n"
    "  0    完成、正常、已验证\n"
    "  1    所询问的对象有问题：状态异常（status）、未通过验证（audit verify）、\n"
    "       操作未成功（approve）、运行未成功（ask、follow）、配置有误（reload）\n"
    "  2    命令行或请求无法理解\n"
    "  3    hermesd 或 hermesd-executor 没有运行或无法连接\n"
    "  4    被拒绝：没有权限、口令错误、没有批准\n"
    "  5    没有这样的事故、运行、操作或命令\n"
    "  130  查看时被中断    141  输出的读取方已退出\n\n"
    "\b\n环境变量：\n"
    "  HERMESD_CONTROL_SOCKET、HERMESD_OPERATOR_SOCKET、LC_ALL、LANG、NO_COLOR",
)
