"""Reads a file for TensorBoard with the package tensorboard, for tests/lua/test_export.lua.

usage: tensorboard_files.py FOLDER      each value of the curves in it: tag, step, wall time, value
status 5: tensorboard is not installed
"""
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util
except ImportError as missing:
    print("python3: %s: pip install tensorboard" % missing, file=sys.stderr)
    sys.exit(5)


def show(folder):
    events = EventAccumulator(folder, size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            print(tag, event.step, "%.17g" % event.wall_time, "%.9g" % event.value)
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            value = tensor_util.make_ndarray(event.tensor_proto).item()
            print(tag, event.step, "%.17g" % event.wall_time, "%.9g" % value)


if __name__ == "__main__":
    show(sys.argv[1])
