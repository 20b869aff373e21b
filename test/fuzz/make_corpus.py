#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: tiny valid files of every format, and near misses, under corpus/ beside this file.

    make_corpus.py [DIRECTORY]

Needs h5py, numpy and Pillow. The seeds are in the repository; this is how they were made.
"""
import io
import json
import pathlib
import struct
import sys
import zlib

import h5py
import numpy
from PIL import Image

sys.path.append(str(pathlib.Path(__file__).parent.parent.parent / "scripts"))
import tfrecord
from tfrecord import blobs, field, floats, int64s, record

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / "corpus")


def put(target, name, data):
    path = ROOT / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


# tf.train.Example and TFRecord -----------------------------------------------------------------------------------------

def example(**features):
    return tfrecord.example({name.replace("__", "/"): values for name, values in features.items()})


def examples(picture):
    yield "image", example(image__encoded=blobs(picture), image__class__label=int64s(3))
    yield "image_float_label", example(image__encoded=blobs(picture[:40]), image__class__label=floats(3.0))
    yield "one_hot", example(image__encoded=blobs(picture[:40]), image__class__label=int64s(0, 0, 1, 0))
    yield "sparse", example(label=int64s(1), ids=int64s(3, 17, 40), values=floats(1.0, 0.5, -2.0))
    yield "sparse_without_values", example(label=floats(1.0), ids=int64s(3, 17))
    yield "sparse_not_finite", example(label=int64s(1), ids=int64s(3), values=floats(float("nan")))
    yield "sparse_unpacked", example(label=field(3, b"\x08\x01"), ids=field(3, b"\x08\x05\x08\x07"))
    yield "negative", example(label=int64s(-1), ids=int64s(-5), values=floats(1.0))
    yield "escape", example(**{"\x1b[2Kname": int64s(1), "two\nlines": blobs(b"x")})


# Pictures ----------------------------------------------------------------------------------------------------------------

def gradient(height, width, mode="RGB"):
    y, x = numpy.mgrid[0:height, 0:width]
    channels = {"L": 1, "RGB": 3, "CMYK": 4, "RGBA": 4, "LA": 2}[mode]
    pixels = numpy.stack([(y * 9 + x * 5 + 40 * c) % 256 for c in range(channels)], axis=-1).astype(numpy.uint8)
    return Image.fromarray(pixels[..., 0] if channels == 1 else pixels, mode)


def encoded(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def tiff(order, orientation):
    mark = b"II" if order == "<" else b"MM"
    return mark + struct.pack(order + "HIHHHIHHI", 42, 8, 1, 0x0112, 3, 1, orientation, 0, 0)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pictures():
    for mode in ("L", "RGB", "CMYK"):
        put("jpeg", f"{mode.lower()}.jpg", encoded(gradient(12, 17, mode), "JPEG", quality=60))
    put("jpeg", "progressive.jpg", encoded(gradient(20, 24), "JPEG", quality=50, progressive=True))
    put("jpeg", "subsampled.jpg", encoded(gradient(20, 24), "JPEG", quality=50, subsampling=2))
    put("jpeg", "restarts.jpg", encoded(gradient(20, 24), "JPEG", quality=50, restart_marker_rows=1))
    whole = encoded(gradient(20, 24), "JPEG", quality=50)
    put("jpeg", "cut.jpg", whole[:len(whole) * 3 // 4])
    put("jpeg", "trailer.jpg", whole[:-2] + b"maker's trailer")
    put("jpeg", "exif.jpg", encoded(gradient(9, 13), "JPEG", quality=50, exif=b"Exif\0\0" + tiff("<", 6)))
    for name, image in {"rgb": gradient(7, 5), "gray": gradient(7, 5, "L"), "rgba": gradient(7, 5, "RGBA"),
                        "gray_alpha": gradient(7, 5, "LA"), "palette": gradient(7, 5).quantize(8),
                        "bits": gradient(7, 5, "L").convert("1")}.items():
        put("png", f"{name}.png", encoded(image, "PNG"))
    deep = Image.fromarray((numpy.arange(35, dtype=numpy.uint32).reshape(5, 7) * 1800).astype(numpy.uint16))
    put("png", "deep.png", encoded(deep, "PNG"))
    plain = encoded(gradient(7, 5), "PNG")
    text = chunk(b"tEXt", b"Title\0" + b"x" * 40) + chunk(b"zTXt", b"Title\0\0" + zlib.compress(b"y" * 4000))
    put("png", "text.png", plain[:33] + text + plain[33:])
    put("png", "interlaced.png", interlaced())
    for order in "<>":
        put("exif", f"tiff_{'little' if order == '<' else 'big'}", tiff(order, 8))
    put("exif", "jpeg", encoded(gradient(9, 13), "JPEG", quality=50, exif=b"Exif\0\0" + tiff(">", 3)))
    put("exif", "past_the_end", b"II" + struct.pack("<HI", 42, 0xFFFFFFF0))


def interlaced():
    """1 x 1 gray, Adam7."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\x80")) + chunk(b"IEND", b"")


# HDF5 --------------------------------------------------------------------------------------------------------------------

def hdf5(fill, **options):
    out = io.BytesIO()
    with h5py.File(out, "w", **options) as file:
        fill(file)
    return out.getvalue()


def image_file(file, images, labels):
    file["images"] = images
    file["labels"] = labels


def hdf5_files():
    pixels = numpy.arange(2 * 3 * 4 * 4, dtype=numpy.uint8).reshape(2, 3, 4, 4)
    labels = numpy.array([1, 0], numpy.int64)
    put("hdf5_data", "u8.h5", hdf5(lambda f: image_file(f, pixels, labels)))
    put("hdf5_data", "f32.h5", hdf5(lambda f: image_file(f, pixels[:, :1].astype(numpy.float32) / 255, labels)))
    put("hdf5_data", "f64.h5", hdf5(lambda f: image_file(f, pixels / 255, labels.astype(numpy.int16))))
    put("hdf5_data", "column.h5", hdf5(lambda f: image_file(f, pixels, labels.reshape(2, 1))))

    def compressed(file):
        file.create_dataset("images", data=pixels, chunks=(1, 3, 4, 4), compression="gzip", shuffle=True, fletcher32=True)
        file["labels"] = labels
    put("hdf5_data", "chunks.h5", hdf5(compressed))
    put("hdf5_data", "latest.h5", hdf5(lambda f: image_file(f, pixels, labels), libver="latest"))

    def weights(file):
        file["fc.weight"] = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
        file["fc.bias"] = numpy.zeros(2, numpy.float32)
        file["bn.num_batches_tracked"] = numpy.array(7)
    put("hdf5_weights", "weights.h5", hdf5(weights))
    put("hdf5_weights", "latest.h5", hdf5(weights, libver="latest"))

    def nested(file):
        weights(file.create_group("model"))
        file["alias"] = h5py.SoftLink("/model/fc.bias")
    put("hdf5_weights", "model.h5", hdf5(nested))

    def external(file):
        file["fc.bias"] = h5py.ExternalLink("other.h5", "/fc.bias")
    put("hdf5_weights", "external_link.h5", hdf5(external))


def crc64(data):
    """CRC-64/XZ."""
    crc = 2**64 - 1
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xC96C5795D7870F42 if crc & 1 else 0)
    return crc ^ (2**64 - 1)


def header(step, size, checksum, version=1):
    text = f"lockstep-checkpoint\nversion {version}\nstep {step}\nbytes {size}\ncrc64 {checksum:016x}\n"
    text += f"header {crc64(text.encode()):016x}\n"
    return text.encode().ljust(512, b"\0")


def checkpoint(file):
    file["model/fc.weight"] = numpy.ones((2, 2), numpy.float32)
    file["optimizer/momentum/fc.weight"] = numpy.zeros((2, 2), numpy.float32)
    file["training/position"] = numpy.array([8], numpy.int64)
    file["training/best"] = numpy.array([0.5])
    text = b"[model]\nname = \"wide_mlp\"\n[train]\nsteps = 3\n"
    file["config"] = numpy.frombuffer(text, numpy.uint8)
    file["classes"] = numpy.array([b"cat", b"dog"], "S3")
    file.attrs.update({"format": numpy.bytes_("lockstep-checkpoint"), "format_version": 1, "complete": 1, "step": 7,
                       "epoch": 1, "samples_seen": 8, "world_size": 1, "global_batch": 2, "seed": 1,
                       "model": numpy.bytes_("wide_mlp"), "created": numpy.bytes_("2026-01-01T00:00:00Z")})


def checkpoints():
    for libver in ("earliest", "latest"):
        data = hdf5(checkpoint, userblock_size=512, libver=libver)
        put("checkpoint", f"{libver}.h5", header(7, len(data), crc64(data[512:])) + data[512:])
    put("checkpoint", "bare.h5", hdf5(checkpoint))
    put("checkpoint_header", "right", header(7, 4096, 0x123456789ABCDEF0))
    put("checkpoint_header", "newer", header(7, 4096, 1, version=2))
    put("checkpoint_header", "large", header(2**63 - 1, 2**63 - 1, 2**64 - 1))
    put("checkpoint_header", "cut", header(7, 4096, 1)[:100])


# Everything else ---------------------------------------------------------------------------------------------------------

def safetensors(tensors, data, **metadata):
    if metadata:
        tensors = {"__metadata__": metadata, **tensors}
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(shape, begin, end, kind="F32"):
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


def exchange():
    two = {"fc.weight": tensor([2, 3], 0, 24), "fc.bias": tensor([2], 24, 32)}
    put("safetensors", "two", safetensors(two, bytes(32), format="pt"))
    put("safetensors", "counter", safetensors({**two, "bn.num_batches_tracked": tensor([], 32, 40, "I64")}, bytes(40)))
    put("safetensors", "overlap", safetensors({"a": tensor([8], 0, 32), "b": tensor([8], 0, 32)}, bytes(32)))
    put("safetensors", "gap", safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 16, 24)}, bytes(24)))
    put("safetensors", "half", safetensors({"a": tensor([4], 0, 8, "F16")}, bytes(8)))
    put("safetensors", "large", safetensors({"a": tensor([2**62, 4], 0, 0)}, b""))
    put("safetensors", "deep", struct.pack("<Q", 2000) + b"[" * 2000)


# ONNX: field numbers are those of onnx.proto -----------------------------------------------------------------------------

def number(field_number, value):
    return tfrecord.varint(field_number << 3) + tfrecord.varint(value)


def onnx_tensor(name, *dims, integers=None, all_are=None):
    head = b"".join(number(1, extent) for extent in dims) + number(2, 1 if integers is None else 7) + field(8, name)
    if integers is not None:
        return field(5, head + field(7, b"".join(map(tfrecord.varint, integers))))
    return field(5, head + field(9, (numpy.linspace(-1, 1, int(numpy.prod(dims))) if all_are is None
                                   else numpy.full(dims, all_are)).astype("<f4").tobytes()))


def onnx_node(kind, inputs, output, **attributes):
    node = b"".join(field(1, name) for name in inputs.encode().split()) + field(2, output) + field(4, kind)
    for name, value in attributes.items():
        values = b"".join(number(8, v) for v in value) if isinstance(value, list) else number(3, value)
        node += field(5, field(1, name.encode()) + values)
    return field(1, node)


def onnx_file(*parts, opset=17):
    dims = b"".join(field(1, number(1, extent)) for extent in (2, 3, 32, 32))
    images = field(11, field(1, b"x") + field(2, field(1, number(1, 1) + field(2, dims))))
    return field(7, b"".join(parts) + images + field(12, field(1, b"y"))) + field(8, number(2, opset))


def onnx_files():
    conv = onnx_node(b"Conv", "x c.weight c.bias", b"c", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    weights = onnx_tensor(b"c.weight", 4, 3, 3, 3) + onnx_tensor(b"c.bias", 4)
    norm = onnx_node(b"BatchNormalization", "c n.weight n.bias n.bias n.weight", b"n", training_mode=1)
    weights += onnx_tensor(b"n.weight", 4) + onnx_tensor(b"n.bias", 4)
    tail = onnx_node(b"Add", "n c", b"s") + onnx_node(b"Relu", "s", b"r") + onnx_node(b"Concat", "r s", b"t", axis=1)
    tail += onnx_node(b"MaxPool", "t", b"m", kernel_shape=[3, 3], ceil_mode=1) + onnx_node(b"Dropout", "m", b"d")
    tail += onnx_node(b"LRN", "d", b"l", size=3) + onnx_node(b"ReduceMean", "l axes", b"g", keepdims=0)
    tail += onnx_node(b"Gemm", "g w b", b"z", transB=1) + onnx_node(b"Softmax", "z", b"y", axis=1)
    weights += onnx_tensor(b"axes", 2, integers=[2, 3]) + onnx_tensor(b"w", 10, 8) + onnx_tensor(b"b", 10)
    put("onnx", "net", onnx_file(conv, norm, tail, weights))
    view = onnx_node(b"Pad", "x pads", b"p") + onnx_node(b"AveragePool", "p", b"a", kernel_shape=[3, 3], strides=[8, 8])
    view += onnx_node(b"Shape", "a", b"h") + onnx_node(b"Gather", "h zero", b"i") + onnx_node(b"Unsqueeze", "i zero", b"j")
    view += onnx_node(b"Concat", "j rest", b"k", axis=0) + onnx_node(b"Reshape", "a k", b"v")
    view += onnx_node(b"MatMul", "v w", b"q") + onnx_node(b"Identity", "b", b"e") + onnx_node(b"Add", "q e", b"y")
    view += onnx_tensor(b"pads", 8, integers=[0, 0, 1, 1, 0, 0, 1, 1]) + onnx_tensor(b"zero", 1, integers=[0])
    view += onnx_tensor(b"rest", 1, integers=[-1]) + onnx_tensor(b"w", 48, 10) + onnx_tensor(b"b", 10)
    put("onnx", "view", onnx_file(view))
    groups = onnx_node(b"Conv", "x c.weight c.bias", b"c", group=3) + onnx_node(b"Clip", "c zero six", b"r")
    groups += onnx_node(b"ReduceMean", "r axes", b"g", keepdims=0) + onnx_node(b"Transpose", "h.weight", b"t", perm=[1, 0])
    groups += onnx_node(b"MatMul", "g t", b"h") + onnx_node(b"Gemm", "h w", b"y", transB=1)
    groups += onnx_tensor(b"c.weight", 6, 1, 3, 3) + onnx_tensor(b"c.bias", 6) + onnx_tensor(b"axes", 2, integers=[2, 3])
    groups += onnx_tensor(b"zero", 1, all_are=0) + onnx_tensor(b"six", 1, all_are=6)
    groups += onnx_tensor(b"h.weight", 8, 6) + onnx_tensor(b"w", 10, 8)
    put("onnx", "groups", onnx_file(groups))
    put("onnx", "convolutional", onnx_file(conv, weights, onnx_node(b"Relu", "c", b"r"),
                                           onnx_node(b"GlobalAveragePool", "r", b"g"), onnx_node(b"Flatten", "g", b"y")))
    put("onnx", "unknown", onnx_file(onnx_node(b"Sigmoid", "x", b"y")))
    put("onnx", "old", onnx_file(onnx_node(b"Relu", "x", b"y"), opset=9))
    put("onnx", "large", onnx_file(onnx_node(b"Conv", "x w", b"y"), field(5, b"".join(number(1, 2**62) for _ in range(4)) +
                                                                     number(2, 1) + field(8, b"w"))))
    put("onnx", "cut", onnx_file(conv, weights)[:-40])


def text_seeds():
    put("config", "recipe.toml", '[model]\nname = "inception_v3"\nclasses = 10\n\n[data]\nformat = "tfrecord"\n'
        'train = ["a/train-*", "b"]\nlabel_offset = -1\n\n[train]\nbatch_size = 32\nepochs = 1.5\nseed = 7\n\n[schedule]\n'
        'name = "piecewise"\nboundaries = [10, 20]\nrates = [0.1, 0.01, 0.001]\n[checkpoint]\nevery_seconds = 600\n')
    put("config", "sections.toml", "[eval]\nevery_epochs = 1\n[device]\nkind = \"cpu\"\n[log]\ntensorboard = false\n"
        "[watchdog]\nwarn_seconds = 5\n[ema]\ndecay = 0.99\n[graph]\nrewrites = true\n[comm]\nbucket_mb = 4\n")
    put("config", "unknown.toml", "[trian]\nsteps = 1\n")
    put("config", "types.toml", "[train]\nsteps = 1979-05-27T07:32:00Z\nepochs = [[1], {a = 2}]\nseed = 0x7f\n")
    put("config", "dotted.toml", ".".join("a" * 600) + " = 1\n")
    put("config", "strings.toml", "[model]\nname = \"\"\"\na\\u0000\\U0001F600\"\"\"\n[data]\ntrain = '''x'''\n")
    put("model_file", "net.toml", 'layer = [\n  { op = "conv_norm_relu", name = "c", channels = 4, kernel = [3, 1], pad = [1, 0] },\n'
        '  { block = "b", names = ["x", "y"], n = 4 },\n  { op = "max_pool", name = "p", kernel = 2, stride = 2 },\n'
        '  { op = "local_response_norm", name = "l", size = 3, k = 2.0 },\n  { op = "flatten", name = "f" },\n'
        '  { op = "linear", name = "fc", outputs = "$classes", deviation = 0.01 },\n  { op = "loss", name = "s" },\n]\n'
        '[block]\nb = [\n  { op = "conv", name = "c", channels = "$n", bias = true, deviation = "fan_out" },\n'
        '  { op = "add", name = "a", inputs = ["c", "input"] },\n]\n')
    put("model_file", "auxiliary.toml", 'layer = [\n  { op = "relu", name = "r" },\n'
        '  { block = "h", name = "aux", only = "training" },\n  { op = "flatten", name = "f", input = "r" },\n'
        '  { op = "linear", name = "fc", outputs = "$classes" },\n  { op = "loss", name = "s" },\n'
        '  { op = "loss", name = "t", input = "aux", weight = 0.4, only = "training" },\n]\n'
        '[block]\nh = [\n  { op = "flatten", name = "f" },\n  { op = "linear", name = "fc", outputs = "$classes" },\n]\n')
    put("model_file", "options.toml", 'layer = [\n  { op = "conv", name = "c", channels = "$classes" },\n'
        '  { op = "batch_norm", name = "n", epsilon = 1e-05 },\n  { op = "dropout", name = "d", rate = 0.25 },\n'
        '  { op = "avg_pool", name = "a", kernel = 2, pad = 1, stride = 2, ceil_mode = true, count_include_pad = false },\n'
        '  { op = "global_avg_pool", name = "g" },\n  { op = "flatten", name = "f" },\n  { op = "loss", name = "s" },\n]\n')
    put("model_file", "groups.toml", 'classes = 10\nimage_size = 32\nlayer = [\n'
        '  { op = "conv", name = "c", channels = 6, groups = 3 },\n  { op = "relu6", name = "r" },\n'
        '  { op = "global_avg_pool", name = "g" },\n  { op = "flatten", name = "f" },\n'
        '  { op = "linear", name = "fc", outputs = "$classes", bias = false },\n  { op = "loss", name = "s" },\n]\n')
    put("model_file", "twice.toml", 'layer = [{ op = "relu", names = ["a", "a"] }]\n')
    put("model_file", "large.toml", 'layer = [{ op = "conv", name = "a", channels = 65536, kernel = 1024, pad = 1023 }]\n')
    lines = {"train": "--config=digits\n--train.steps=5\n--optimizer.lr\n0.1", "help": "--help", "version": "--version",
             "evaluate": "evaluate\n--config\nx.toml\n--checkpoint\nlatest", "inspect": "inspect\n--verify\nx.h5",
             "export": "export\nx.h5\n--to\ny.onnx\n--fold_batch_norm", "import": "import\nx.h5\n--to\ny.h5",
             "pack": "pack\n--config\nx.toml\n--to\nz\n--short_side\n256", "check": "check\n--data.train=a,b",
             "benchmark": "--model\ninception3\n--batch_size=64\n--num_batches\n100\n--nodistortions\n--optimizer=momentum",
             "benchmark_keys": "--model=resnet50\n--forward_only\n--train.seed=3\n--variable_update=horovod",
             "list": "--data.train=[\"a,b\", \"c\"]", "wrong": "--trian.steps=3\n\x1b[2K\nbogus"}
    for name, text in lines.items():
        put("command_line", name, text)
    put("environment", "keys", "LOCKSTEP_TRAIN_SEED=7\nLOCKSTEP_MODEL_NAME=resnet50\nOMP_NUM_THREADS=4,2\n")
    put("environment", "slurm", "SLURM_JOB_END_TIME=4102444800\nSLURM_STEP_NUM_TASKS=4\nSLURM_NTASKS=8\nSLURM_PROCID=0\n"
        "SLURM_STEP_ID=0\n")
    put("environment", "job_end", "LOCKSTEP_JOB_END=1e3\nOMP_NUM_THREADS=99999\n")
    put("environment", "mpirun", "OMPI_COMM_WORLD_SIZE=4\nOMPI_COMM_WORLD_RANK=1\nOMP_NUM_THREADS=500m\n")
    put("environment", "misspelt", "LOCKSTEP_TRAIN_SEDE=7\n")
    put("environment", "quota", "200000 100000\n")
    put("environment", "unlimited", "max 100000\n")


def main():
    picture = encoded(gradient(6, 6), "JPEG", quality=30)
    all_examples = dict(examples(picture))
    for name, data in all_examples.items():
        put("example", name, data)
    put("tfrecord", "images", record(all_examples["image"]) + record(all_examples["image_float_label"]))
    put("tfrecord", "sparse", b"".join(record(data) for name, data in all_examples.items() if "sparse" in name))
    put("tfrecord", "empty", record(b""))
    put("tfrecord", "cut", record(all_examples["sparse"])[:-3])
    put("tfrecord", "long", struct.pack("<Q", 2**63) + tfrecord.masked_crc32c(struct.pack("<Q", 2**63)))
    put("tfrecord", "gzip", b"\x1f\x8b\x08\0" + bytes(20))
    bounds = [i * 65536 for i in range(17)]
    put("record_index", "right", b"." + struct.pack("<17q", *bounds))
    put("record_index", "short_records", b"." + struct.pack("<5q", 0, 8, 15, 16, 1 << 20))
    put("record_index", "wrong_count", b"#" + struct.pack("<3q", 2**61, 0, 65536))
    put("cifar", "cifar10", bytes([3]) + bytes(3072) + bytes([77]) + bytes(3072))
    put("cifar", "cifar100", bytes([1, 99]) + bytes(3072))
    put("cifar", "rest", bytes(3080))
    pictures()
    hdf5_files()
    checkpoints()
    exchange()
    text_seeds()
    onnx_files()


if __name__ == "__main__":
    main()
