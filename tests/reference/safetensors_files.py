"""Reads and writes safetensors files with the package of that name, for tests/lua/test_safetensors.lua.

usage: safetensors_files.py show FILE            each tensor in order of names: name, dtype, shape, values
       safetensors_files.py write FILE DTYPE     the tensors of an MLP 10-20-10 as float16, float32 or float64
status 5: numpy or safetensors is not installed
"""
import sys

try:
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError as missing:
    print("python3: %s: pip install safetensors numpy" % missing, file=sys.stderr)
    sys.exit(5)

NAMES = {"float16": "F16", "float32": "F32", "float64": "F64"}


def show(path):
    with safe_open(path, framework="numpy") as file:
        for name in sorted(file.keys(), key=str.encode):
            tensor = file.get_tensor(name)
            values = " ".join("%.17g" % v for v in tensor.astype(numpy.float64).ravel())
            shape = ",".join(str(n) for n in tensor.shape)
            print(name, NAMES[str(tensor.dtype)], "(%s)" % shape, values)


def write(path, dtype):
    shapes = {"fc1.weight": (20, 10), "fc1.bias": (20,), "fc2.weight": (10, 20), "fc2.bias": (10,)}
    random = numpy.random.RandomState(1)
    tensors = {name: random.randn(*shape).astype(dtype) for name, shape in shapes.items()}
    tensors["fc1.bias"][0] = 5.9604644775390625e-08 if dtype == "float16" else 1e-40
    save_file(tensors, path, metadata={"format": "np"})


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
