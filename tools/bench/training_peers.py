#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes training steps with PyTorch in turns with the bench's row training_step_10m, on the same cores.

    training_peers.py BENCH [--device NAME] [--rounds N] [--steps N] [--threads N] [--json FILE]

BENCH is the program `bench`. The model is the same: Llama's layers of width 320, 6 layers of 5 heads of 64, feed-forward 864, vocabulary 4096, not
tied, on one text of 512 tokens in fp32; AdamW on every parameter, gradients clipped to a norm of 1. A round runs the row, then N steps of PyTorch
(transformers' LlamaForCausalLM), the first of all left out. Prints both medians of tokens a second over all rounds, and the median, least and
greatest ratio of a round: ours over PyTorch's. Needs torch and transformers.

    training_peers.py --gguf FOLDER

writes the model, untrained, as FOLDER/model.gguf, with FOLDER/text.txt beside, for llama.cpp:
    llama-finetune -m model.gguf -f text.txt -c 512 -b 512 -ub 512 -ngl 99 -fa off -ctk f32 -ctv f32 -epochs 1 -o tuned.gguf
Needs gguf and numpy.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, TOKENS, EPSILON, THETA = 4096, 320, 864, 6, 5, 512, 1e-5, 10000.0
ROW = "training_step_10m"


class Torch:
    def __init__(self, threads):
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
        torch.set_num_threads(threads)
        torch.manual_seed(0)
        self.torch = torch
        self.model = LlamaForCausalLM(LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
            num_key_value_heads=HEADS, max_position_embeddings=TOKENS, rms_norm_eps=EPSILON, rope_theta=THETA, tie_word_embeddings=False,
            use_cache=False)).float().train()
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3)
        self.ids = torch.randint(VOCABULARY, (1, TOKENS + 1))
        self.step()

    def step(self):
        """Takes a step, and gives its seconds."""
        start = time.perf_counter()
        self.optimizer.zero_grad(set_to_none=True)
        logits = self.model(input_ids=self.ids[:, :-1]).logits[0]
        loss = self.torch.nn.functional.cross_entropy(logits, self.ids[0, 1:])
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        loss.item()
        return time.perf_counter() - start


def row_of(bench, device, seconds):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "row.json")
        chosen = ["--device", device] if device else []
        subprocess.run([bench, "--filter", f"^{ROW}$", "--seconds", str(seconds), "--json", file, *chosen], check=True, stdout=subprocess.DEVNULL)
        with open(file) as rows:
            return json.load(rows)[0]


def compare(options):
    peer = Torch(options.threads)
    rounds = []
    for number in range(options.rounds):
        row = row_of(os.path.abspath(options.bench), options.device, options.seconds)
        ours = TOKENS / row["ms"] * 1e3
        theirs = TOKENS / statistics.median(peer.step() for _ in range(options.steps))
        rounds.append({"vkformer": ours, "torch": theirs, "row": row})
        print(f"round {number + 1}: {row['device']} {ours:.0f}, PyTorch {theirs:.0f} tokens/s", flush=True)
    ratios = [r["vkformer"] / r["torch"] for r in rounds]
    print(f"PyTorch {peer.torch.__version__}, {options.threads} threads: {statistics.median(r['torch'] for r in rounds):.0f} tokens/s; vkformer "
          f"{statistics.median(r['vkformer'] for r in rounds):.0f}; ratio {statistics.median(ratios):.2f}, {min(ratios):.2f}..{max(ratios):.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rounds, file, indent=1)


def write_gguf(folder):
    import gguf
    import numpy as np
    os.makedirs(folder, exist_ok=True)
    out = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), "llama")
    out.add_context_length(4 * TOKENS)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(HIDDEN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(EPSILON)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_rope_freq_base(THETA)
    out.add_file_type(0)
    out.add_vocab_size(VOCABULARY)
    # bytes, and words that no text has: a tokenizer must be there
    words = VOCABULARY - 259
    out.add_tokenizer_model("llama")
    out.add_token_list([t.encode() for t in ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"\u2581t{i}" for i in range(words)]])
    out.add_token_scores([0.0] * 259 + [-float(i) for i in range(words)])
    out.add_token_types([2, 3, 3] + [6] * 256 + [1] * words)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    rng = np.random.default_rng(0)
    matrix = lambda rows, columns: (rng.standard_normal((rows, columns)) * 0.02).astype(np.float32)
    out.add_tensor("token_embd.weight", matrix(VOCABULARY, WIDTH))
    out.add_tensor("output.weight", matrix(VOCABULARY, WIDTH))
    out.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for i in range(LAYERS):
        for name, rows, columns in [("attn_q", WIDTH, WIDTH), ("attn_k", WIDTH, WIDTH), ("attn_v", WIDTH, WIDTH), ("attn_output", WIDTH, WIDTH),
                                    ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN)]:
            out.add_tensor(f"blk.{i}.{name}.weight", matrix(rows, columns))
        for name in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"blk.{i}.{name}.weight", np.ones(WIDTH, np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    random.seed(0)
    with open(os.path.join(folder, "text.txt"), "w") as text:
        text.write("".join(chr(random.randrange(97, 123)) for _ in range(4 * TOKENS)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench", nargs="?")
    parser.add_argument("--device", help="as bench takes it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="steps of PyTorch a round")
    parser.add_argument("--seconds", type=float, default=5, help="time that the bench spends on its row a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="write the rates of every round to this file")
    parser.add_argument("--gguf", metavar="FOLDER", help="write the model for llama.cpp, and end")
    options = parser.parse_args()
    if options.gguf:
        write_gguf(options.gguf)
    elif options.bench:
        compare(options)
    else:
        parser.error("BENCH or --gguf FOLDER is needed")


if __name__ == "__main__":
    main()
