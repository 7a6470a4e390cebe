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


OPENING = ("{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n    {%- if enable_thinking is defined and enable_thinking is false %}"
           "{{- '<think>\\n\\n</think>\\n\\n' }}ELSE{%- endif %}\n{%- endif %}")
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
    # a system message of the template's own, in other ways than above
    "chatml_quotes": "{% if messages[0]['role'] != 'system' %}{{ \"<|im_start|>system\\nYou're 'Bot', \" + 'made by <Acme> {1}: \\\\\\t\\x41\\u00e9.<|im_end|>\\n' }}{% endif %}"
                     + LOOP + IM + END + answer("<|im_start|>assistant\\n"),
    "chatml_variable": "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set messages = messages[1:] %}{% else %}"
                       "{% set system = 'You are terse.' %}{% endif %}{{ '<|im_start|>system\\n' + system + '<|im_end|>\\n' }}" + LOOP + IM + END
                       + answer("<|im_start|>assistant\\n"),
    "chatml_apart": "{% if tools %}{{ '<|im_start|>system\\nTools: ' + tools | tojson + '<|im_end|>\\n' }}{% elif messages[0].role != 'system' %}"
                    "{{ '<|im_start|>system\\n' }}{{ 'You are terse.' }}{{ '<|im_end|>\\n' }}{% endif %}" + LOOP + IM + END
                    + answer("<|im_start|>assistant\\n"),
    "llama3_default": "{{ bos_token }}{% if messages[0]['role'] != 'system' %}{{ '<|start_header_id|>system<|end_header_id|>\\n\\nYou are terse.<|eot_id|>' }}"
                      "{% endif %}" + LOOP + "{{ " + HEADER + " }}" + END + answer("<|start_header_id|>assistant<|end_header_id|>\\n\\n"),
    "llama2_default": SYSTEM_FIRST.replace("system_message = ''", "system_message = 'You are terse.'") + LOOP
                      + "{% if loop.first %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + " + CONTENT + " %}{% endif %}"
                      "{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}" + END,
    # space is stripped of some messages only, and words in comments do nothing
    "llama3_untrimmed": "{# trim? #}{{ bos_token }}" + LOOP + "{% if " + ROLE + " == 'system' %}{{ " + HEADER + " }}{% else %}{{ "
                        + HEADER.replace(" | trim", "") + " }}{% endif %}" + END + answer("<|start_header_id|>assistant<|end_header_id|>\\n\\n"),
    "mistral_system": "{{- bos_token }}\n{%- if messages[0][\"role\"] == \"system\" %}\n    {%- set system_message = messages[0][\"content\"] %}\n"
                      "    {%- set messages = messages[1:] %}\n{%- endif %}\n" + LOOP + "{%- if message.role == 'user' %}{%- if loop.last and "
                      "system_message is defined %}{{- '[INST] ' + system_message + '\\n\\n' + message.content + '[/INST]' }}{%- else %}"
                      "{{- '[INST] ' + message.content + '[/INST]' }}{%- endif %}{%- elif message.role == 'assistant' %}"
                      "{{- ' ' + message.content | trim + eos_token }}{%- endif %}" + END,
    "mistral_no_bos": "{# the tokenizer puts the bos_token, and nothing is strip()ped or trimmed #}" + NO_SYSTEM + LOOP + "{{ '[INST] ' + " + CONTENT
                      + " + ' [/INST]' }}" + END,
    "gemma_first": "{{ bos_token }}{% set ns = namespace(first='') %}{% if messages[0].role == 'system' %}{% set ns.first = messages[0].content + '\\n\\n' %}"
                   "{% set messages = messages[1:] %}{% endif %}" + LOOP + "{{ '<start_of_turn>' + ('model' if " + ROLE + " == 'assistant' else " + ROLE + ") + "
                   "'\\n' + (ns.first if loop.first else '') + " + CONTENT + " | trim + '<end_of_turn>\\n' }}" + END + answer("<start_of_turn>model\\n"),
    # the opening of an answer
    "chatml_switch": LOOP + IM + END + OPENING.replace("ELSE", ""),
    "chatml_opening": LOOP + IM + END + OPENING.replace("ELSE", "{%- else %}{{- '<think>\\n' }}"),
    # space between the tags, which transformers partly leaves out
    "mistral_lines": "{{ bos_token }}\n\n  {% for message in messages %}\n  {% if " + ROLE + " == 'user' %}\n{{ '[INST] ' + " + CONTENT + " + ' [/INST]' }}\n"
                     "  {%+ else -%}\n   {{ '[SYSTEM] ' + " + CONTENT + " -}}\n {% endif %}  \n{% endfor %}\n\n",
    # the user's text or role are others than those that are asked for
    "chatml_left": LOOP + IM.replace(CONTENT, CONTENT + ".lstrip()") + END + answer("<|im_start|>assistant\\n"),
    "chatml_lines": LOOP + IM.replace(CONTENT, CONTENT + ".strip('\\n')") + END + answer("<|im_start|>assistant\\n"),
    "chatml_suffix": LOOP + IM.replace("'<|im_end|>'", "' /no_think<|im_end|>'") + END + answer("<|im_start|>assistant\\n"),
    "chatml_human": LOOP + "{% set role = 'human' if " + ROLE + " == 'user' else " + ROLE + " %}" + IM.replace(ROLE, "role") + END
                    + answer("<|im_start|>assistant\\n"),
    "chatml_preamble": "You talk to a bot.\n" + LOOP + IM + END + answer("<|im_start|>assistant\\n"),
    "chatml_year": "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nIt is ' + strftime_now('%Y') + '.<|im_end|>\\n' }}{% endif %}" + LOOP + IM
                   + END + answer("<|im_start|>assistant\\n"),
    "llama2_asks": LOOP + "{% if '<<SYS>>' in " + CONTENT + " %}{{ '[INST] ' + " + CONTENT + " + ' [/INST]' }}{% else %}{{ '[INST] <<SYS>>' + " + CONTENT
                   + " + ' [/INST]' }}{% endif %}" + END,
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
