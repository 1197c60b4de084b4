"""What holds for every test: llama.cpp's idle threads sleep, since tests share few cores with much else."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
