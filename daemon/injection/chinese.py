"""What an order to an agent sounds like in Chinese, simplified or traditional.

Chinese has no blanks to tell words apart, so anchors are pieces of text here, and patterns count characters.
"""

from __future__ import annotations

import re

from daemon.injection.signs import Family, Sign, phrase, words

_TRADITIONAL = str.maketrans(
    "視無忘記請從現開於規則設這給說話電郵發遞交將資訊檔傳達轉輸導內執務統員戶種過見聽應該為與對們別須擬變護認報結裡錄儲權復覆蓋棄"
    "詞啟動點擊連鏈網據庫憑證鑰環數遵擇聲稱誰麼樣後處標題終極顯狀態僅",
    "视无忘记请从现开于规则设这给说话电邮发递交将资讯档传达转输导内执务统员户种过见听应该为与对们别须拟变护认报结里录储权复覆盖弃"
    "词启动点击连链网据库凭证钥环数遵择声称谁么样后处标题终极显状态仅",
)

_IGNORE = """
    忽略 无视 忽视 忘记 忘掉 忘了 遗忘 抛弃 丢弃 丢掉 抛开 抛掉 放弃 摒弃 舍弃 不理会 不要理会 别理会 不用理会 不必理会 无需理会
    不要理睬 别理 别管 不管 不要管 不用管 不要再遵守 不要再遵循 不要遵守 不要遵循 不再遵守 不再遵循 不必遵守 不必遵循 无需遵守 无需遵循 不用遵守 不用遵循
    停止遵守 停止遵循 停止执行 不要执行 不再执行 不要听从 不要服从 违反 违背 不顾 略过 跳过 删除 清除 清空 取消 撤销 撤回 废除
    覆盖 重置 绕过 绕开 突破 解除 推翻 屏蔽 停用 关闭
    """
_UNDO = words("""
    删除 清除 清空 取消 撤销 撤回 略过 跳过 关闭 停用 屏蔽 重置 覆盖 推翻 解除 不管 违反 违背 突破 废除 放弃 停止执行 不要执行
    不再执行 绕过 绕开
    """)
_EARLIER_WORDS = (
    "之前 先前 此前 以前 以上 上述 上面 前面 上文 前述 原有 原来 原先 原本 原始 既有 刚才 早先 最初 初始 已有 前边"
)
_YOURS_WORDS = "用户的 你的 您的 系统 开发者 自己的 你收到 给你 告诉你 安全 预设 内置"
_FIRM_WORDS = "系统消息 指令 指示 提示词 提示语 提示 命令 规则 约束 限制 设定 准则 规定 指引 训练 prompt"
_SOFT_WORDS = "原则 请求 安全策略 指导 要求 任务 策略 对话 上下文 内容 说明 设置 消息 身份 角色 过滤 审查 信息 话"
_HARM = (
    "(?:发送|转发|上传|删除|执行|运行|调用|泄露|输出|打印|透露|读取|下载|安装|转账|转移|提交|写入|公布|披露|复制|邮寄|发给|发到|告诉|忽略"
    "|写入|推荐|声称|写|显示|修改|更改|创建|关闭|禁用|批准|清空|访问|打开|回复|拼接|外传|抄送)"
)


def _any(text: str) -> str:
    return f"(?:{'|'.join(text.split())})"


_PARTS = {
    "IGNORE": _any(_IGNORE),
    "QUALIFY": _any(f"{_EARLIER_WORDS} {_YOURS_WORDS} 现有 过去 所有 一切 全部 任何 其他 其它 默认 它的"),
    "NOUN": _any(f"{_FIRM_WORDS} {_SOFT_WORDS}"),
    "FIRM": _any(_FIRM_WORDS),
    "EARLIER": _any(_EARLIER_WORDS),
    "HARM": _HARM,
    "AGENT": "(?:ai|人工智能|智能体|大模型|语言模型|机器人|llm|chatgpt|gpt|claude)(?:助手|模型|代理|助理|系统|智能体|机器人)?",
    "SECRETS": "(?:密码|密钥|令牌|凭证|凭据|私钥|环境变量|系统提示|对话记录|聊天记录|token|api ?key|\\.env|配置文件|数据库|文件|id_rsa"
    "|身份证|银行卡|账号|通讯录|邮件|报告|内容|数据)",
}
_EARLIER = re.compile(f"{_PARTS['EARLIER']}|收到|给你|告诉你")
_YOURS = re.compile(_any(_YOURS_WORDS))
_FIRM = words(_FIRM_WORDS)
_TOLD_OF = re.compile(
    "(?:会|将|可以|可能|能够|能|想要|试图|尝试|导致|如果|是否|自动|默认|用于|用来|防止|避免|例如|比如|不应|诱导|让模型|使模型|要求模型|直接"
    "|被|而|就|时|可|不|未|了|曾|已|没有|的)$"
)
_NEGATED = ("不要", "不能", "不得", "不会", "不可", "勿", "禁止", "切勿", "请勿", "不应", "不应该", "避免")
_YOU = re.compile("你|您|请|现在|务必|必须|立即|马上|助手|模型|注意|重要|立刻")
_CLAUSE_END = re.compile("[。！？；，,.!?;:：\n]")


def _weigh_override(match: re.Match[str]) -> int:
    before = match.string[max(0, match.start() - 20) : match.start()]
    if before.endswith(_NEGATED):
        return 0
    points = _worth(match["verb"], match["between"], match["noun"])
    if _TOLD_OF.search(before) and not _YOU.search(_CLAUSE_END.split(before)[-1]):
        return min(points, 5)
    return points


def _worth(verb: str, between: str, noun: str) -> int:
    earlier, yours = _EARLIER.search(between), _YOURS.search(between)
    you = "你" in between or "您" in between
    everything = re.search("所有|一切|全部", between)
    if noun in _FIRM:
        if verb not in _UNDO:
            return 10 if earlier or yours else 5
        if earlier and noun in ("指令", "指示", "提示词", "prompt", "约束", "系统消息"):
            return 10
        return 10 if you else 6 if earlier and everything else 4 if yours else 3 if earlier else 1
    if verb in _UNDO:
        return 10 if you and noun in ("任务", "过滤", "审查", "安全策略") else 2 if earlier else 0
    if noun in ("请求", "原则") and yours:
        return 10
    if noun in ("话", "要求", "任务", "安全策略") and (you or (earlier and everything)):
        return 10
    return 6 if earlier or you else 0


def _weigh_passive(match: re.Match[str]) -> int:
    if re.search("将被?忽略|会被?忽略|可能|已被?取消|如果", match[0]):
        return 4
    ours = re.search("指令|指示|提示|约束|话|说的|规则|命令|你的|您的|设定|限制", match[0])
    return 10 if ours and re.search(f"{_PARTS['EARLIER']}|你的|您的|系统", match[0]) else 4


def _weigh_becoming(match: re.Match[str]) -> int:
    sure = (
        "不受|没有(?:任何)?限制|无限制|模式|不再|越狱|dan|黑客|机器人|助手|ai|人工智能|模型|管理员|角色|没有任何|没有道德|服从|听从|只听|代理"
        "|智能体|终端|专家|必须"
    )
    return 10 if re.search(sure, match[0]) else 5 if re.search("扮演|是一|执行|遵循", match[0]) else 2


def _weigh_mode(match: re.Match[str]) -> int:
    if re.search("上帝|越狱|dan|无限制|不受限|无审查|邪恶", match[0]):
        return 10
    around = match.string[max(0, match.start() - 60) : match.end() + 60]
    if re.search("手机|设备|设置|usb|安卓|android|浏览器|选项", around):
        return 2
    return 10 if re.search("开发者|管理员|root|sudo", match[0]) and re.search("你|助手|限制|忽略|指令", around) else 3


def _weigh_voice(match: re.Match[str]) -> int:
    said = match[0]
    grave = "忽略|无视|你(?:现在|必须|是|需|应|将)|新的?(?:指令|任务|指示|目标)|泄露|助手(?:必须|应|需)|必须立即|ai(?:必须|应)"
    if re.search(grave, said):
        return 10
    if not re.search(_HARM, said):
        return 1
    if re.search("(?:系统|管理员|开发者|最高权限)(?:指令|指示|命令|覆盖)", said):
        return 10
    if not re.search("发送|转发|上传|删除|执行|泄露|转账|外传|公布|披露", said):
        return 2
    return 7 if re.search("立即|必须|务必|马上", said) else 5 if re.search("请|把|将", said) else 2


def _weigh_turn(match: re.Match[str]) -> int:
    orders = "必须|忽略|无视|你现在|立即|马上|新的?(?:指令|任务)|发送|转发|上传|删除|执行|泄露|务必"
    return 10 if re.search("[\u4e00-\u9fff]", match[0]) and re.search(orders, match[0]) else 0


def _weigh_address(match: re.Match[str]) -> int:
    said = match[0]
    if re.search("可以|能够|帮助|帮你|用于", said):
        return 1
    to = re.search("致|告|正在阅读|阅读|处理|读到|如果你是|注意|你|您", said)
    return 6 if to and re.search("务必|必须|立即|马上|发送|转发|上传|删除|泄露|忽略", said) else 2


def _weigh_task(match: re.Match[str]) -> int:
    if "以下是" in match[0] or not re.search("你|新|指令|指示|命令|提示词|使命", match[0]):
        return 2
    after = match.string[match.end() : match.end() + 14]
    return (
        10
        if re.search(_HARM, after) and re.search("指令|指示|命令|任务", match[0])
        else 7
        if "任务" not in match[0]
        else 3
    )


_SIGNS = (
    Sign(
        "override",
        0,
        phrase(
            r"""
            (?P<verb><IGNORE>)(?:掉|了|过|一下|我|我们)?
            (?P<between>(?:.{0,6}?<QUALIFY>){1,4}.{0,8}?)(?P<noun><NOUN>)
            """,
            **_PARTS,
        ),
        words(f"{_FIRM_WORDS} {_SOFT_WORDS}"),
        words(_IGNORE),
        _weigh_override,
        back=50,
        ahead=12,
    ),
    Sign(
        "override",
        0,
        phrase(
            r"""
            (?:<EARLIER>|你的|您的|所有|全部|系统)(?:.{0,10}?)(?:<FIRM>|要求|说的|话).{0,4}?
            (?:都|全都|全部|均|已经|已|现在|一律|统统|从现在起|立即|可以|应当|不){0,3}
            (?:作废|无效|失效|被取消|不再有效|不再生效|不算数|不用管|不必理会|被?忽略|无视|不再适用|取消|忘掉|忘记|作罢|废止|过期
              |被覆盖|被替换|被?解除)
            """,
            **_PARTS,
        ),
        words(
            "作废 无效 失效 取消 不再有效 不再生效 不算数 不用管 不必理会 忽略 无视 不再适用 忘掉 忘记 作罢 废止 过期 被覆盖 被替换 解除"
        ),
        words(f"{_FIRM_WORDS} 要求 说的 话"),
        _weigh_passive,
        back=40,
        ahead=12,
    ),
    Sign(
        "override",
        10,
        phrase(
            r"""
            (?:把|将)(?:你|您|<EARLIER>|所有|全部)[^。！？\n]{0,16}?(?:<FIRM>|话|内容|要求|说的|一切)[^。！？\n]{0,6}?
            (?:忘掉|忘记|忘了|忽略|无视|抛开|丢掉|扔掉|作废|抛到脑后|忘得)
            """,
            **_PARTS,
        ),
        words("忘掉 忘记 忘了 忽略 无视 抛开 丢掉 扔掉 作废 抛到脑后 忘得"),
        words("把 将"),
        back=50,
        ahead=8,
    ),
    Sign(
        "override",
        0,
        phrase(
            r"""
            (?:忘记|忘掉|忘了|忽略|无视|抛开)(?:掉|了)?(?:<EARLIER>|你)?(?:的)?(?:所有|一切|全部)?(?:的)?
            (?:你(?:所)?(?:知道|学到|被告知|收到|听到)的|<EARLIER>(?:说)?(?:的)?(?:所有|一切|全部)(?:的)?(?:内容|信息|东西|话|指令)?
              |上文[，,。；;]?(?:改为|转而|而是|只|并|直接|请))
            """,
            **_PARTS,
        ),
        words("忘记 忘掉 忘了 忽略 无视 抛开"),
        weigh=lambda match: 0 if _TOLD_OF.search(match.string[max(0, match.start() - 4) : match.start()]) else 10,
        back=4,
        ahead=40,
    ),
    Sign(
        "persona",
        0,
        phrase(
            r"""
            (?:你现在|从现在(?:开始|起)[,，]?你|现在你|今后你|接下来你|你将|从此刻起[,，]?你|你从现在(?:开始|起))
            (?:就|将|必须|要|应该|只能|需要|应当){0,2}
            (?:是|扮演|成为|变成|作为|充当|进入|处于|切换|不再|没有|只听|必须|服从|听从|叫|遵循|执行)[^。！？\n]{0,24}
            """
        ),
        words("现在 今后 接下来 你将 从此刻"),
        weigh=_weigh_becoming,
        back=8,
        ahead=60,
    ),
    Sign(
        "persona",
        0,
        phrase(
            r"""
            (?:进入|启用|开启|激活|切换到|切换至|打开|启动|处于)(?:了)?[^。！？\n]{0,4}?
            (?:开发者|上帝|越狱|dan|无限制|不受限|无审查|超级管理员|邪恶|调试|维护|管理员|root|sudo)(?:的)?模式
            """
        ),
        words("模式"),
        weigh=_weigh_mode,
        back=24,
        ahead=4,
    ),
    Sign(
        "persona",
        0,
        phrase(
            r"""
            (?:扮演|假装(?:你)?(?:是|成)?|假设你是|想象你是|充当|模拟)[^。！？\n]{0,16}?
            (?:没有(?:任何)?(?:限制|约束|道德|规则|审查|底线)|不受(?:任何)?(?:限制|约束|规则)|无(?:任何)?(?:限制|约束|审查|道德)
              |越狱|dan\b|邪恶|不遵守)
            """
        ),
        words("扮演 假装 假设你是 想象你是 充当 模拟"),
        weigh=lambda match: (
            10 if not match[0].startswith(("模拟", "充当")) or re.search("ai|助手|模型|机器人", match[0]) else 3
        ),
        back=2,
        ahead=50,
    ),
    Sign(
        "persona",
        10,
        phrase(
            r"""
            你(?:现在|已经|已|将)?(?:没有任何|不受任何|不再受|不受|摆脱了?|已经?被?解除了?)(?:[^。！？\n]{0,8}?)
            (?:限制|约束|规则|道德|审查|束缚|规定|管控)
            """
        ),
        words("没有任何 不受 不再受 摆脱 解除"),
        back=8,
        ahead=24,
    ),
    Sign(
        "new orders",
        0,
        phrase(
            r"""
            (?:新的?|真正的?|最新的?|唯一的?|更新后的|以下是|隐藏的?|秘密)(?:系统)?(?:指令|指示|任务|命令|目标|提示词|使命)
              (?:是|如下|为|：|:|来自)
            |你(?:现在)?的(?:新|真正|唯一|首要|实际|当前)(?:的)?(?:任务|目标|指令|使命|角色|身份|职责)(?:是|：|:|为|如下|变)
            """
        ),
        words("指令 指示 任务 命令 目标 提示词 使命 角色 身份 职责"),
        weigh=_weigh_task,
        back=14,
        ahead=8,
    ),
    Sign(
        "new orders",
        5,
        phrase(
            r"""
            (?:改为|而是|转而|只需|必须|严格|现在|请|并|只|务必|直接|立即|马上)(?:按照|遵循|遵守|执行|服从|听从|按)
            (?:我的|以下|下面|下列|如下|这个|这条|新的|我接下来)[^。！？\n]{0,6}?(?:指令|指示|命令)
            """
        ),
        words("指令 指示 命令"),
        back=24,
        ahead=4,
    ),
    Sign(
        "addressed",
        0,
        phrase(
            r"""
            (?:致|给|告|注意|各位|亲爱的|尊敬的|如果你是|作为|由于你是|你好)?[,，:：]?\s?
            (?:(?:所有|任何|正在阅读|阅读|处理|读到)[^。！？\n]{0,8}?)?<AGENT>[,，:：!！。]?\s?[^。！？\n]{0,20}?
            (?:请|必须|应该|应当|务必|需要|立即|马上|你|您)[^。！？\n]{0,12}?<HARM>
            """,
            **_PARTS,
        ),
        words("ai 人工智能 智能体 大模型 语言模型 机器人 llm gpt claude"),
        weigh=_weigh_address,
        back=24,
        ahead=60,
    ),
    Sign(
        "addressed",
        0,
        phrase(
            r"""
            (?:(?:正在|任何|所有|每个)?(?:阅读|处理|读取|读到|看到|分析|总结|解析)(?:本|此|这|该)[^。！？\n]{0,8}?的?<AGENT>
              |<AGENT>(?:助手)?(?:请注意|注意)?[：:，,])[^。！？\n]{0,16}?<HARM>
            """,
            **_PARTS,
        ),
        words("ai 人工智能 智能体 大模型 语言模型 机器人 llm gpt claude"),
        weigh=lambda match: 10 if re.search("本|此|这|该|注意", match[0]) else 5,
        back=24,
        ahead=50,
    ),
    Sign(
        "conceal",
        5,
        phrase(
            r"""
            (?:不要|不得|切勿|请勿|无需|不必|不可|千万别|别|禁止|避免)(?:向|让|把|将|对|跟|和)?[^。！？\n]{0,8}?
              (?:告诉|告知|通知|提及|透露|提醒|知道|知晓|提到|发现|询问|汇报|报告)(?:给)?(?:用户|主人|任何人|操作员|使用者|人类|他人)
            |(?:不要|不得|切勿|请勿|千万别|别|禁止)(?:向|让|对|跟|和|告诉|告知|通知)(?:用户|主人|任何人|操作员|使用者|人类)
              [^。！？\n]{0,10}?(?:提|说|知|透露|汇报|发现|察觉)
            """
        ),
        words("用户 主人 任何人 操作员 使用者 人类 他人"),
        back=30,
        ahead=20,
    ),
    Sign(
        "exfiltrate",
        4,
        phrase(
            r"""
            <SECRETS>[^。！？\n]{0,30}?(?:发送|转发|上传|发给|发到|发往|寄到|提交|外传|传到|传给|post|抄送|邮寄)[^。！？\n]{0,12}?
            (?:https?|[\w.]+@|[\w-]+\.(?:com|net|cn|org|io|example|invalid|test))
            """,
            **_PARTS,
        ),
        words("发送 转发 上传 发给 发到 发往 寄到 提交 外传 传到 传给 post 抄送 邮寄"),
        back=50,
        ahead=50,
    ),
    Sign(
        "reveal",
        0,
        phrase(
            r"""
            (?:输出|打印|显示|告诉我|透露|泄露|重复|复述|展示|公开|给出|说出|列出|写出|发送|返回)[^。！？\n]{0,8}?
            (?:你|您)(?:的|收到的)?(?:完整的?|全部的?|初始的?|原始的?|隐藏的?|所有的?|内部的?){0,2}
            (?:系统)?(?:提示词?|指令|设定|prompt|系统消息|规则)
            """
        ),
        words("提示 指令 设定 prompt 系统消息 规则"),
        weigh=lambda match: 10 if re.search("系统|提示词|prompt|初始|隐藏|内部|原始", match[0]) else 6,
        back=36,
        ahead=6,
    ),
    Sign(
        "system voice",
        0,
        phrase(
            r"""
            (?:^|\n|[。！？"'>])[ \t>#*\-\[【(（《<「『]{0,6}(?:系统|管理员|开发者|超级管理员|最高权限|官方)
            (?:提示|消息|通知|指令|指示|公告|命令|更新|管理员|覆盖|警告|提醒)?[ \t]?[\]】)）》>」』]{0,3}[ \t]?[:：]?[^\n]{0,60}
            """
        ),
        words("系统 管理员 开发者 最高权限 官方"),
        words(": ： ] 】"),
        _weigh_voice,
        back=10,
        ahead=80,
    ),
    Sign(
        "system voice",
        0,
        re.compile(r"zqvoice[^\n]{0,60}"),
        words("zqvoice"),
        weigh=lambda match: _weigh_voice(match) if re.search("[\u4e00-\u9fff]", match[0]) else 0,
    ),
    Sign("forged turn", 0, re.compile(r"zqchat[^\n]{0,20}\s{0,3}[^\n]{0,160}"), words("zqchat"), weigh=_weigh_turn),
    Sign(
        "forged end",
        8,
        phrase(
            r"""
            (?:工具|函数|搜索|文档|文件|网页|外部|数据|邮件|上文|以上|引用)(?:的)?(?:输出|结果|返回|内容|数据|部分|资料)?
            (?:到此|已经|已|在此)?(?:结束|完毕)[^\n]{0,6}\s{0,4}[^\n]{0,60}?
            (?:系统|指令|指示|用户(?:说|指令|:|：)|你(?:必须|现在|需要|应该))
            """
        ),
        words("结束 完毕"),
        back=16,
        ahead=90,
    ),
    Sign(
        "override",
        0,
        phrase(
            r"""
            (?:<EARLIER>|你的|您的)[^。！？\n]{0,8}?(?:<FIRM>|任务|要求)[^。！？\n]{0,16}?(?:请|都|全部|一律)[^。！？\n]{0,4}?
            (?:忽略|无视|忘记|忘掉|抛弃|作废|不用管|不必理会)
            """,
            **_PARTS,
        ),
        words("忽略 无视 忘记 忘掉 抛弃 作废 不用管 不必理会"),
        words(f"{_FIRM_WORDS} 任务 要求"),
        lambda match: 4 if _TOLD_OF.search(match[0][:-2]) and "请" not in match[0] else 10,
        back=50,
        ahead=6,
    ),
    Sign(
        "override",
        10,
        phrase(
            r"""
            (?:停止|放弃|中止|取消|结束)(?:你)?(?:当前|现在|原来|原本|正在|手头)[^。！？\n]{0,6}?(?:任务|工作|总结)[^。！？\n]{0,6}?
            (?:改为|转而|而是|并|去|开始)
            |你可以(?:绕过|无视|忽略|突破|不遵守)(?:所有|任何|一切|你的|系统)?(?:的)?(?:安全)?(?:限制|规则|规定|策略|约束)
            |你不再是[^。！？\n]{0,8}?(?:助手|ai|模型|机器人)
            |从此刻起(?:你)?(?:只|必须)(?:服从|听从|听)
            |(?:不要|别)(?:再)?(?:总结|翻译|回答|分析)[^。！？\n]{0,16}?(?:而是|改为|转而)
            """
        ),
        words("停止 放弃 中止 取消 结束 你可以 你不再是 从此刻起 不要 别"),
        words("任务 工作 总结 限制 规则 规定 策略 约束 助手 ai 模型 机器人 服从 听从 而是 改为 转而"),
        back=4,
        ahead=50,
    ),
    Sign(
        "new orders",
        5,
        re.compile("(?:按|照)我(?:说|讲)的(?:去)?做|(?:只|都)?听我的(?:命令|指令|话|，|。|！|$)"),
        words("我说的 我讲的 听我的"),
        back=4,
        ahead=10,
    ),
    Sign(
        "persona",
        0,
        re.compile(
            "(?:开发者|上帝|越狱|dan|无限制|超级管理员|管理员|root|sudo)模式(?:已|已经|现已)?(?:启用|开启|激活|打开|解锁)"
        ),
        words("模式"),
        weigh=_weigh_mode,
        back=12,
        ahead=12,
    ),
    Sign(
        "reveal",
        10,
        re.compile(
            "(?:把|将)(?:你|您)的?(?:完整的?|全部的?)?(?:系统提示词?|初始指令|提示词|系统指令|隐藏指令|系统设定)[^。！？\n]{0,10}?"
            "(?:输出|打印|显示|告诉|发|展示|复述)|(?:输出|打印|重复|复述)(?:你|您)(?:上面|以上|之前|前面)的?(?:所有|全部)?(?:内容|文字|话|信息)"
        ),
        words("提示 指令 设定 上面 以上 之前 前面"),
        back=16,
        ahead=24,
    ),
    Sign(
        "conceal",
        6,
        re.compile(
            "(?:不要|切勿|请勿|别)(?:提及|提到|透露|显示)(?:此|这|本|这条|该)(?:条)?(?:指令|消息|内容|信息|提示|规则)"
        ),
        words("指令 消息 内容 信息 提示 规则"),
        words("提及 提到 透露 显示"),
        back=14,
        ahead=6,
    ),
    Sign(
        "authority",
        0,
        phrase(
            r"""
            (?:用户|管理员|主人|开发者)(?:已|已经)(?:授权|批准|确认|同意)[^。！？\n]{0,16}
            |(?:无需|不需要|不必|跳过)(?:用户)?(?:确认|批准|询问|授权|同意)[^。！？\n]{0,16}
            """
        ),
        words("授权 批准 确认 询问 同意"),
        weigh=lambda match: 6 if re.search(_HARM, match[0]) and re.search("直接|立即|马上", match[0]) else 2,
        back=12,
        ahead=24,
    ),
)
_PIECES = frozenset(piece for sign in _SIGNS for piece in sign.anchors | sign.besides)
CHINESE = Family(_SIGNS)


def simplified(text: str) -> str:
    """Return text with the traditional characters that signs use as simplified ones."""
    return text.translate(_TRADITIONAL)


def pieces(text: str) -> frozenset[str]:
    """Return which of the anchors of Chinese signs occur in a text."""
    chars = frozenset(text)
    return frozenset(piece for piece in _PIECES if piece[0] in chars and piece[-1] in chars and piece in text)
