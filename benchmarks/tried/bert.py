"""BERT of transformers in training, fp32; changed: TF32 products."""

import sys

import torch
from transformers import BertConfig, BertForMaskedLM

if "--changed" in sys.argv:
    torch.set_float32_matmul_precision("high")
torch.manual_seed(0)
config = BertConfig(num_hidden_layers=6, hidden_size=768, num_attention_heads=12, intermediate_size=3072, vocab_size=8192)
model: torch.nn.Module = BertForMaskedLM(config)
model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for _ in range(1000):
    tokens = torch.randint(0, 8192, (16, 256), device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
