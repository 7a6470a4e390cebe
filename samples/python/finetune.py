# SPDX-License-Identifier: Apache-2.0
"""Fine-tunes a decoder with LoRA and draws the curve of its loss.

finetune.py [FOLDER [STEPS]]: a Hugging Face folder; without one the small Llama in samples/generate, which
learns to write its numbers backwards.
"""

import pathlib
import sys

import vkformer as vkf

if len(sys.argv) > 3 or "-h" in sys.argv or "--help" in sys.argv:
    sys.exit("usage: finetune.py [FOLDER [STEPS]]")
folder = sys.argv[1] if len(sys.argv) > 1 else str(pathlib.Path(__file__).parents[1] / "generate")
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300
texts = ["0 is orez.", "1 is eno.", "2 is owt.", "3 is eerht.", "4 is ruof.", "5 is evif."]

device = vkf.Device()
checkpoint = vkf.Checkpoint(folder)
model = vkf.read_decoder(checkpoint)
tokenizer = vkf.Tokenizer(folder)
begin = vkf.begin_of_text(folder, model.facts.begins_texts)
end = model.facts.end[:1]
batch = [list(vkf.encode_prompt(tokenizer, text, begin, model.facts.begin)) for text in texts]
batch = [ids if ids[-1:] == end else ids + end for ids in batch]  # so that answers end
tuner = vkf.FineTuner(device, checkpoint, model, max_batch=len(batch), max_tokens=max(map(len, batch)),
                      lora=vkf.LoraOptions(rank=8, targets=["q_proj", "v_proj", "o_proj", "up_proj", "down_proj"]),
                      optimizer=vkf.AdamW(lr=2e-2), schedule=vkf.Schedule("cosine", warmup=3, steps=steps), max_norm=1.0)
losses: list[float] = []
for step in range(steps):
    losses.append(tuner.take_step(batch).loss)
    print(f"step {step}: {losses[-1]:.4f}")
vkf.plot.curve(losses).save("losses.svg")
tuner.save("adapter")
tuned = vkf.load_decoder(folder, adapter="adapter", max_tokens=32, device=device)
print(repr(tuned.generate("3 is", max_tokens=12)), "losses.svg", "adapter")
