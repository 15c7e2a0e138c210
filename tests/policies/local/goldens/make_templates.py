"""What Jinja, set up as transformers does, makes of templates/*.jinja and of the expressions in snippets.txt.

Run with a Python that has transformers (made with 5.23.0) and jinja2 (3.1.6); writes renderings.json.
"""

import datetime
import glob
import json
import os

from transformers.utils import chat_template_utils

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)


class StoppedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = StoppedClock

TOOLS = [
    {"type": "function", "function": {"name": "measure", "description": "Times a \"kernel\" <fast> & é\n", "parameters": {"type": "object", "properties": {"source": {"type": "string", "description": "CUDA"}, "unit": {"type": "string", "enum": ["ms", "us"]}, "shape": {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}, "required": ["n"]}}, "required": ["source"]}}},
    {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def call(arguments, content=""):
    return {"role": "assistant", "content": content, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "measure", "arguments": arguments}}]}


USER = {"role": "user", "content": " Make it  fast:\n\tрелу {{ x }} 速く "}
SYSTEM = {"role": "system", "content": "Be brief.\n"}
THOUGHT = {"role": "assistant", "content": "<think>\nlong thoughts\n</think>\n\nDone.\n"}
REASONED = {"role": "assistant", "reasoning_content": "\nwhy\n", "content": "Because."}
RESULT = {"role": "tool", "content": "{\"ms\": 1.5}"}
CONVERSATIONS = {
    "one": [USER], "system": [SYSTEM, USER], "turns": [SYSTEM, USER, THOUGHT, USER], "end": [USER, REASONED, USER, THOUGHT],
    "calls": [USER, call({"source": "x", "n": 3, "f": 1e-7, "g": 2.0, "deep": [None, True, {"é": []}]}), RESULT, RESULT, REASONED, USER],
    "call_text": [SYSTEM, USER, call("{\"source\": 1}", "I call."), RESULT],
    "two_calls": [USER, {"role": "assistant", "content": "", "tool_calls": [call({})["tool_calls"][0]] * 2}, RESULT],
    "parts": [SYSTEM, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}],
    "result_object": [USER, call({"source": "x"}), {"role": "ipython", "content": {"ms": [1, 2.5, None]}}],
    "fake_result": [USER, THOUGHT, {"role": "user", "content": "<result>x</result>"}, THOUGHT],
    "empty": [], "late_system": [USER, SYSTEM, USER], "null": [USER, {"role": "assistant", "content": None}],
    "many": [USER, THOUGHT] * 4,
}
EXTRAS = [{}, {"tools": TOOLS}, {"enable_thinking": False}, {"enable_thinking": True, "custom_tools": TOOLS, "date_string": "1 Jan 2025"},
          {"tools": TOOLS, "tools_in_user_message": False, "builtin_tools": ["measure", "interpreter", "ping"]}]
VARIABLES = {
    "n": 7, "zero": 0, "negative": -3, "f": 2.5, "big": 12345678901234567890 // 10, "yes": True, "no": False, "nothing": None,
    "text": "Hello, World", "empty": "", "wide": "naïve 漢字 😀", "lines": "one\ntwo\r\n\n  three\n", "padded": " \t x y \n",
    "items": [3, 1, 2], "names": ["b", "A", "c", "a"], "none_list": [], "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}],
    "map": {"b": 1, "a": [1, 2], "items": "shadowed", "with'quote": "x\"y"}, "rows": [{"n": 2, "t": {"x": "p"}}, {"n": 1, "t": {"x": "q"}}, {"n": 2}],
    "quotes": "it's \"quoted\" \\ \t\n\u00a0\u200b", "number_text": " 42 ", "float_text": "2.75",
}


def render(source, variables):
    try:
        return {"text": chat_template_utils._compile_jinja_template(source).render(**variables)}
    except Exception as error:  # whatever a template can do wrong
        return {"refused": type(error).__name__}


def main():
    result = {"variables": VARIABLES, "conversations": CONVERSATIONS, "extras": EXTRAS, "chats": [], "snippets": []}
    for path in sorted(glob.glob(os.path.join(HERE, "templates", "*.jinja"))):
        with open(path, encoding="utf-8", newline="") as file:
            source = file.read()
        for name, messages in CONVERSATIONS.items():
            for number, extra in enumerate(EXTRAS):
                for prompt in (True, False):
                    variables = {"bos_token": "<s>", "eos_token": "</s>", "messages": messages, "tools": None, "documents": None,
                                 "add_generation_prompt": prompt, **extra}
                    case = {"template": os.path.basename(path), "conversation": name, "extra": number, "prompt": prompt}
                    result["chats"].append({**case, **render(source, variables)})
    with open(os.path.join(HERE, "snippets.txt"), encoding="utf-8", newline="") as file:
        for line in file.read().split("\n"):
            if line and not line.startswith("# "):
                source = line.replace("␤", "\n").replace("␍", "\r")
                result["snippets"].append({"source": source, **render(source, VARIABLES)})
    with open(os.path.join(HERE, "renderings.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")
    refused = [s for s in result["snippets"] if "refused" in s]
    print(len(result["chats"]), "chats,", len(result["snippets"]), "snippets,", len(refused), "of them refused")


main()
