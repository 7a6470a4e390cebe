# SPDX-License-Identifier: Apache-2.0
"""What the public headers declare: functions, and the members of classes, by name."""

import re

TOKEN = re.compile(r'//[^\n]*|#(?:\\\n|[^\n])*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[A-Za-z_]\w*|\d[\w.+]*|::|->|<<|[<>=!]=|\S')
SKIPPED = {"using", "friend", "static_assert", "typedef"}


def public_headers(root):
    text = (root / "cmake/Headers.cmake").read_text()
    headers = re.findall(r"[\w/]+\.h", text[text.index("set(public_headers"):text.index("# For op authors")])
    return [root / h for h in headers]


class Reader:
    """Reads C++ as this project writes it: (owner, name) of what is public into `functions` and `members`."""

    def __init__(self, text, functions, members, enums):
        self.tokens = [t for t in TOKEN.findall(text) if not t.startswith(("//", "#"))]
        self.i, self.functions, self.members, self.enums = 0, functions, members, enums

    def at(self, ahead=0):
        return self.tokens[self.i + ahead] if self.i + ahead < len(self.tokens) else ""

    def skip_brackets(self):
        depth = 0
        while True:
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(self.at(), 0)
            self.i += 1
            if depth == 0:
                return

    def skip_angles(self):
        depth = 0
        while True:
            depth += {"<": 1, ">": -1}.get(self.at(), 0)
            self.i += 1
            if depth == 0:
                return

    def skip_declaration(self):
        while self.at() != ";":
            self.skip_brackets() if self.at() in "({" else setattr(self, "i", self.i + 1)
        self.i += 1

    def scope(self, owner="", public=True):
        while self.i < len(self.tokens):
            t = self.at()
            if t == "}":
                self.i += 1
                return
            if t == ";":
                self.i += 1
            elif t in ("public", "private", "protected") and self.at(1) == ":":
                public = t == "public"
                self.i += 2
            elif t in ("namespace", "extern"):
                name = owner
                self.i += 1
                while self.at() != "{":
                    if re.match(r"[A-Za-z]", self.at()) and self.at() != "vkf":
                        name = f"{name}::{self.at()}" if name else self.at()
                    self.i += 1
                self.i += 1
                self.scope(name)
            elif t == "template":
                self.i += 1
                self.skip_angles()
            elif t in SKIPPED:
                self.skip_declaration()
            elif t == "enum":
                self.i += 2 if self.at(1) == "class" else 1
                name = f"{owner}::{self.at()}" if owner else self.at()
                while self.at() != "{":
                    self.i += 1
                if public:
                    start = self.i
                    self.skip_brackets()
                    inside = " ".join(self.tokens[start + 1:self.i - 1])
                    self.enums[name] = [part.split()[0] for part in inside.split(",") if part.strip()]
                else:
                    self.skip_brackets()
                self.declaration(owner, public) if self.at() != ";" else None
            elif t in ("struct", "class") and self.record(owner, public):
                pass
            else:
                self.declaration(owner, public)

    def record(self, owner, public):
        name = 2 if self.at(1) == "VKF_API" else 1
        if self.at(name + 1) == ";":
            self.skip_declaration()
            return True
        if self.at(name + 1) not in ("{", ":"):
            return False
        full = f"{owner}::{self.at(name)}" if owner else self.at(name)
        is_struct = self.at() == "struct"
        while self.at() != "{":
            self.i += 1
        if public:
            self.i += 1
            self.scope(full, is_struct)
        else:
            self.skip_brackets()
        self.skip_declaration()
        return True

    def declaration(self, owner, public):
        words, angles, is_variable = [], 0, False
        while True:
            t = self.at()
            if t == "operator":
                t = ""
                while self.at(1) != "(" or not t:
                    self.i += 1
                    t += self.at()
                words.append("operator" + t)
                self.i += 1
                continue
            angles += {"<": 1, ">": -1}.get(t, 0)
            is_variable = is_variable or t == "=" or (t == "(" and self.at(1) == "*")
            if angles <= 0 and (t == ";" or (t == "(" and not is_variable)):
                break
            if t in ("(", "{"):
                self.skip_brackets()
            else:
                words.append(t)
                self.i += 1
        last = words[-1] if words else ""
        if self.at() == "(":
            self.skip_brackets()
            while self.at() not in (";", "{"):
                words.append(self.at()) if self.at() == "delete" else None
                self.skip_brackets() if self.at() == "(" else setattr(self, "i", self.i + 1)
            self.skip_brackets() if self.at() == "{" else setattr(self, "i", self.i + 1)
            if public and "~" not in words and "delete" not in words and not (owner and last.startswith("operator")):
                self.functions.add((owner, last))
            return
        self.skip_declaration()
        if public and owner and words[:1] != ["static"]:
            # several names of one type: "double a = 1, b = 2"
            for name in re.findall(r"(?:^|,)\s*(?:[\w:<>,\s*&]*?)\b([A-Za-z_]\w*)\s*(?:=[^,]*|\[[^\]]*\])?\s*(?=,|$)", " ".join(
                    re.split(r" = ", " ".join(words))[:1])):
                if name not in ("const",):
                    self.members.add((owner, name))


def public_declarations(root):
    functions, members, enums = set(), set(), {}
    for header in public_headers(root):
        Reader(header.read_text(), functions, members, enums).scope()
    return functions, members, enums
