# SPDX-License-Identifier: Apache-2.0
"""Host time of eager launches through PyTorch, the framework that SGLang and vLLM run on.

Prints one JSON object. Needs torch with CUDA. Figures are medians of host microseconds for one operation
issued into a filled stream: a plain element-wise kernel, a small matrix product, RMS norm as a few kernels,
and one decoder layer's worth of them as a mean over its kernels.
"""
import json
import statistics
import time

import torch


def host_us(body, count, repetitions=30):
    """Median host microseconds of one of `count` operations that `body` issues."""
    samples = []
    for _ in range(repetitions):
        torch.cuda.synchronize()
        torch.cuda._sleep(20_000_000)  # a filled stream: the host never waits for the GPU
        begin = time.perf_counter()
        body()
        samples.append((time.perf_counter() - begin) * 1e6 / count)
        torch.cuda.synchronize()
    return statistics.median(samples), statistics.pstdev(samples)


def main():
    device = torch.device("cuda")
    x = torch.randn(4, 7168, device=device, dtype=torch.bfloat16)
    w = torch.randn(2112, 7168, device=device, dtype=torch.bfloat16)
    gain = torch.ones(7168, device=device, dtype=torch.bfloat16)
    n = 200

    def add():
        for _ in range(n):
            x.add_(1)

    def matmul():
        for _ in range(n):
            torch.nn.functional.linear(x, w)

    def norm():
        for _ in range(n):
            torch.nn.functional.rms_norm(x, (7168,), gain)

    out = {"format": "draftboard.framework_launch", "version": 1, "torch": torch.__version__,
           "gpu": torch.cuda.get_device_name()}
    with torch.inference_mode():
        for name, body in (("add", add), ("linear", matmul), ("rms_norm", norm)):
            body()
            median, spread = host_us(body, n)
            out[name + "_us"] = round(median, 3)
            out[name + "_spread_us"] = round(spread, 3)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
