#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/chat.json: chat templates in the ways the families of models write them, and what `transformers` makes of a question with
and without a system message.

    make_chat_cases.py FILE [TEMPLATE.jinja ...]

The file holds [[name, template, [[user, system, text], ...]], ...]; a text is null where the template raises an error. With templates, those
instead of the ones below. Needs transformers.
"""
import json
import sys

from transformers.utils.chat_template_utils import _compile_jinja_template

ROLE = "message['role']"
CONTENT = "message['content']"
LOOP = "{% for message in messages %}"
END = "{% endfor %}"


def answer(text):
    return "{% if add_generation_prompt %}{{ '" + text + "' }}{% endif %}"


NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system message') }}{% endif %}"
SYSTEM_FIRST = ("{% if messages[0]['role'] == 'system' %}{% set system_message = messages[0]['content'] %}{% set messages = messages[1:] %}"
                "{% else %}{% set system_message = '' %}{% endif %}")
IM = "{{ '<|im_start|>' + " + ROLE + " + '\\n' + " + CONTENT + " + '<|im_end|>' + '\\n' }}"
HEADER = "'<|start_header_id|>' + " + ROLE + " + '<|end_header_id|>\\n\\n' + " + CONTENT + " | trim + '<|eot_id|>'"

OWN = {
    "chatml": LOOP + IM + END + answer("<|im_start|>assistant\\n"),
    "chatml_default": "{%- if messages[0].role != 'system' %}\n    {{- '<|im_start|>system\\nYou answer in verse.<|im_end|>\\n' }}\n{%- endif %}\n"
                      + LOOP + IM + END + answer("<|im_start|>assistant\\n"),
    "chatml_bos": "{{ bos_token }}" + LOOP + IM + END + answer("<|im_start|>assistant\\n"),
    "chatml_thinking": LOOP + IM + END + answer("<|im_start|>assistant\\n<think>\\n"),
    "llama3": LOOP + "{% set content = " + HEADER + " %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
              + END + answer("<|start_header_id|>assistant<|end_header_id|>\\n\\n"),
    "llama3_dated": "{{- bos_token }}\n{%- if not date_string is defined %}\n    {%- set date_string = \"1 Apr 2024\" %}\n{%- endif %}\n"
                    + SYSTEM_FIRST + "{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}\n"
                    "{{- 'Cutting Knowledge Date: March 2023\\n' }}\n{{- 'Today Date: ' + date_string + '\\n\\n' }}\n"
                    "{{- system_message | trim }}\n{{- '<|eot_id|>' }}" + LOOP + "{{- " + HEADER + " }}" + END
                    + answer("<|start_header_id|>assistant<|end_header_id|>\\n\\n"),
    "llama2": SYSTEM_FIRST + LOOP + "{% if loop.index0 == 0 and system_message %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + "
              + CONTENT + " %}{% else %}{% set content = " + CONTENT + " %}{% endif %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}" + END,
    "mistral": NO_SYSTEM + "{{ bos_token }}" + LOOP + "{{ '[INST] ' + " + CONTENT + " + ' [/INST]' }}" + END,
    "mistral_close": "{{ bos_token }}" + NO_SYSTEM + LOOP + "{{ '[INST]' + " + CONTENT + " + '[/INST]' }}" + END,
    "gemma": "{{ bos_token }}" + NO_SYSTEM + LOOP + "{% set role = 'model' if " + ROLE + " == 'assistant' else " + ROLE + " %}{{ '<start_of_turn>' + role + "
             "'\\n' + " + CONTENT + " | trim + '<end_of_turn>\\n' }}" + END + answer("<start_of_turn>model\\n"),
    "other": LOOP + "{{ '### ' + " + ROLE + " + ': ' + " + CONTENT + " + '\\n' }}" + END + answer("### assistant: "),
}
QUESTIONS = ["What is 7 times 8?", "  space \n around \t\n", "naïve “quotes” {{ braces }} <|im_end|>", "x"]
SYSTEMS = ["", "You are terse.", " \n lines\n\nand space "]


def render(template, user, system):
    messages = ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": user}]
    try:
        return _compile_jinja_template(template).render(messages=messages, tools=None, documents=None, add_generation_prompt=True,
                                                        bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>")
    except Exception:
        return None


templates = OWN if len(sys.argv) < 3 else {name: open(name, encoding="utf-8").read() for name in sys.argv[2:]}
with open(sys.argv[1], "w", encoding="utf-8") as file:
    json.dump([[name, template, [[u, s, render(template, u, s)] for u in QUESTIONS for s in SYSTEMS]] for name, template in templates.items()],
              file, ensure_ascii=False, indent=0)
