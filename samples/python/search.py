# SPDX-License-Identifier: Apache-2.0
"""Searches sentences by meaning: search.py FOLDER QUERY, with lines to search on the standard input.

FOLDER is a Hugging Face folder of the BERT family, such as all-MiniLM-L6-v2.
"""

import sys

import numpy as np

import vkformer as vkf

if len(sys.argv) != 3:
    sys.exit("usage: search.py FOLDER QUERY, with lines on the standard input")
folder, query = sys.argv[1:]
lines = [line.strip() for line in sys.stdin if line.strip()]
encoder = vkf.load_text_encoder(folder)
similarity = encoder.encode(lines) @ encoder.encode(query)
for at in np.argsort(-similarity)[:5]:
    print(f"{similarity[at]:.3f}  {lines[at]}")
