"""What holds for every test, wherever the suite is started from."""

import os
import signal

from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle threads of llama.cpp sleep: the cores are shared
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and tests of hang-ups would inherit that
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # so it is in the background of a script

settings.register_profile("ecoshell", deadline=None)  # no test asserts milliseconds
settings.load_profile("ecoshell")
