#include "lockstep/config/keys.h"

#include <algorithm>

#include "config/key_member.h"
#include "lockstep/base/cpu_cores.h"
#include "lockstep/config/model_info.h"

namespace lockstep {
namespace {

std::vector<ConfigKey> make_keys() {
  std::vector<ConfigKey> keys = {
      {LOCKSTEP_KEY(model, name), .allowed = model_names(),
       .meaning = "The model. file: the network that model.file defines.", .also = {"model", "arch", "architecture"}},
      {LOCKSTEP_KEY(model, file), .path = PathRole::input,
       .meaning = "file: the file that defines the network, a list of layers or an ONNX file (docs/model_files.md). "
                  "Rank 0 reads it."},
      {LOCKSTEP_KEY(model, definition),
       .meaning = "file: the definition itself, in place of a file. The program copies the contents of model.file to "
                  "this key, so that checkpoints contain them."},
      {LOCKSTEP_KEY(model, classes), .range = between(2, 1e6),
       .meaning = "Number of classes; labels are 0 to classes - 1.", .also = {"num_classes", "n_classes"}},
      {LOCKSTEP_KEY(model, image_size), .unit = "pixels", .range = between(1, 8192),
       .meaning = "Height and width of the network's input. inception_v3 needs at least 75.",
       .also = {"input_size", "size", "crop_size"}},
      {LOCKSTEP_KEY(model, aux_weight), .range = at_least(0),
       .meaning = "Weight of the auxiliary head's loss; 0 omits the head. A value above 0 requires an image_size of at "
                  "least 299. Models without an auxiliary head ignore it.",
       .also = {"aux_loss_weight", "aux"}},
      {LOCKSTEP_KEY(model, dropout), .range = zero_to_below_one(),
       .meaning = "Probability that an input of the last layer is dropped in training.",
       .also = {"dropout_rate", "drop_rate"}},
      {LOCKSTEP_KEY(model, init), .meaning = "Initial weights: truncated_normal uses the standard deviations of the "
                                             "model, fan_in computes them from each layer's number of inputs."},
      {LOCKSTEP_KEY(model, bn_momentum), .range = above_zero_to_one(),
       .meaning = "Weight of a step's statistics in the running statistics of batch normalization (1 minus "
                  "TensorFlow's decay).",
       .also = {"batch_norm_momentum"}},
      {LOCKSTEP_KEY(model, bn_epsilon), .range = above(0),
       .meaning = "Constant added to the variance in batch normalization.", .also = {"bn_eps", "batch_norm_epsilon"}},
      {LOCKSTEP_KEY(model, bn_scale), .meaning = "Whether batch normalization has a trained scale (gamma)."},
      {LOCKSTEP_KEY(model, transform_input),
       .meaning = "inception_v3: remaps input that data.normalize = \"torchvision\" has normalized to [-1, 1], as "
                  "torchvision does for its ported weights."},
      {LOCKSTEP_KEY(model, mixed_7c_pool),
       .meaning = "inception_v3: the kind of pooling in the pooling branch of Mixed_7c. max gives the network of "
                  "tf_cnn_benchmarks; weights fit only the variant with which they were trained."},
      {LOCKSTEP_KEY(model, hidden), .range = between(1, 1e6),
       .meaning = "wide_mlp: widths of the hidden layers. Other models ignore it."},
      {LOCKSTEP_KEY(model, vocabulary), .range = between(1, 2147483647),
       .meaning = "wide_mlp: number of ids; all ids are below it. Other models ignore it."},
      {LOCKSTEP_KEY(model, max_ids), .unit = "ids", .range = between(1, 1e6),
       .meaning = "wide_mlp: largest number of ids in a sample. Other models ignore it."},

      {LOCKSTEP_KEY(data, format),
       .allowed = {"tfrecord", "folder", "cifar10", "cifar100", "hdf5", "sparse_tfrecord", "synthetic"},
       .meaning = "Format of the data; docs/data.md describes each. synthetic generates images and reads nothing."},
      {LOCKSTEP_KEY(data, train), .path = PathRole::input_pattern,
       .meaning = "Training data: a path, a glob or a list of them.",
       .also = {"data_dir", "train_dir", "path", "training"}},
      {LOCKSTEP_KEY(data, validation), .path = PathRole::input_pattern,
       .meaning = "Validation data, in the same form (synthetic: any word). Empty: no evaluation.",
       .also = {"val", "valid", "eval", "test"}},
      {LOCKSTEP_KEY(data, validation_fraction), .range = zero_to_below_one(),
       .meaning = "If data.validation is empty: fraction of data.train that is held out for evaluation. The choice of "
                  "samples depends only on their position in the data. 0: none.",
       .also = {"val_split", "validation_split"}},
      {LOCKSTEP_KEY(data, label_offset), .range = between(-1000000, 1000000),
       .meaning = "Offset added to every stored label. ImageNet TFRecords contain 1 to 1000, so -1 gives 0 to 999."},
      {LOCKSTEP_KEY(data, label_key), .meaning = "sparse_tfrecord: name of the feature with the label."},
      {LOCKSTEP_KEY(data, ids_key), .meaning = "sparse_tfrecord: name of the feature with the ids."},
      {LOCKSTEP_KEY(data, values_key),
       .meaning = "sparse_tfrecord: name of the feature with the values of the ids; if it is missing, every value "
                  "is 1."},
      {LOCKSTEP_KEY(data, augment), .allowed = {"inception", "torchvision", "crop_flip", "none"},
       .meaning = "Augmentation of training images. Evaluation uses the crop that corresponds to it."},
      {LOCKSTEP_KEY(data, normalize), .allowed = {"inception", "torchvision", "none"},
       .meaning = "Normalization of pixel values: inception maps them to [-1, 1], torchvision subtracts the mean of "
                  "ImageNet and divides by its standard deviation, none keeps the stored values."},
      {LOCKSTEP_KEY(data, shuffle), .meaning = "Whether the samples are reshuffled in every epoch."},
      {LOCKSTEP_KEY(data, shuffle_block), .unit = "records", .range = at_least(0),
       .meaning = "0: fully random order. N: shuffle blocks of N consecutive records, for slow storage.",
       .also = {"shuffle_buffer"}},
      {LOCKSTEP_KEY(data, workers), .unit = "threads", .range = between(0, 1024),
       .meaning = "Threads per rank that read and decode. 0: chosen from the cores that this rank may use.",
       .also = {"num_workers", "threads"}},
      {LOCKSTEP_KEY(data, prefetch), .unit = "batches", .range = between(1, 256),
       .meaning = "Batches per rank that are prefetched. More of them bridge a longer pause of the storage, at the "
                  "cost of their memory.",
       .also = {"prefetch_factor", "prefetch_buffer", "queue_depth"}},
      {LOCKSTEP_KEY(data, max_pixels), .unit = "pixels", .range = between(1, 4e9),
       .meaning = "Largest height times width of an encoded image; a larger image is a bad record. The default is "
                  "above the resolution of any camera."},
      {LOCKSTEP_KEY(data, exif_orientation),
       .meaning = "Whether JPEGs are rotated as their EXIF orientation says, in training and evaluation. The published "
                  "ImageNet recipes use pixels as they are stored."},
      {LOCKSTEP_KEY(data, jpeg_scaling),
       .meaning = "Training only: if the crop of a JPEG is at least three times as large as the network's input, "
                  "decode it at a reduced size, which is faster and gives nearly the same pixels. Evaluation always "
                  "decodes the full size."},
      {LOCKSTEP_KEY(data, bad_records),
       .meaning = "How to handle a record that cannot be read: end the run, or replace, count and report it."},

      {LOCKSTEP_KEY(train, batch_size), .unit = "samples", .range = between(1, 1e6),
       .meaning = "Samples per rank and step.", .also = {"batch", "batchsize", "per_rank_batch"}},
      {LOCKSTEP_KEY(train, global_batch), .unit = "samples", .range = between(0, 1e9),
       .meaning = "Alternative to batch_size: ranks x batch_size x accumulate. Must be divisible by ranks x "
                  "accumulate. 0: use batch_size.",
       .also = {"global_batch_size", "total_batch_size"}},
      {LOCKSTEP_KEY(train, epochs), .range = between(0, 1e6),
       .meaning = "Length of training in epochs; if steps is also set, training ends at whichever comes first. 0: use "
                  "only steps.",
       .also = {"num_epochs", "max_epochs", "n_epochs"}},
      {LOCKSTEP_KEY(train, steps), .range = at_least(0), .meaning = "Length of training in steps. 0: use only epochs.",
       .also = {"max_steps", "num_steps", "num_batches"}},
      {LOCKSTEP_KEY(train, label_smoothing), .range = zero_to_below_one(),
       .meaning = "Fraction of each target that is distributed over all classes."},
      {LOCKSTEP_KEY(train, precision),
       .meaning = "Number format in which layers compute; parameters are always float32. On the CPU: float32, and bf16 "
                  "if the processor has AVX512_BF16 or AMX. tf32 and fp16 need a GPU.",
       .also = {"dtype", "amp", "fp16"}},
      {LOCKSTEP_KEY(train, sync_batch_norm),
       .meaning = "Batch normalization uses the statistics of the samples of all ranks instead of only its own.",
       .also = {"sync_bn"}},
      {LOCKSTEP_KEY(train, accumulate), .range = between(1, 1e6),
       .meaning = "Number of batches whose gradients are accumulated before an update.",
       .also = {"gradient_accumulation_steps", "accumulate_steps"}},
      {LOCKSTEP_KEY(train, clip_norm), .range = at_least(0),
       .meaning = "Largest norm of the whole gradient; a larger gradient is scaled down to it. 0: no clipping.",
       .also = {"gradient_clip", "max_grad_norm", "grad_clip"}},
      {LOCKSTEP_KEY(train, seed), .range = at_least(0),
       .meaning = "Seed of initial weights, sample order, augmentation and dropout.",
       .also = {"random_seed", "rng_seed"}},
      {LOCKSTEP_KEY(train, deterministic),
       .meaning = "On GPUs, two new runs give the same bits with the same ranks and kind of GPU only if this is true "
                  "or device.tune = \"off\": otherwise they may find other plans fastest. On CPUs, every run gives the "
                  "same bits with the same ranks, threads and kind of processor."},
      {LOCKSTEP_KEY(train, max_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "Time after which the run saves and stops. 0: no limit.", .also = {"time_limit", "max_time"}},
      {LOCKSTEP_KEY(train, not_finite),
       .meaning =
           "What to do if a loss or gradient is non-finite. stop: end the run with exit code 4. skip: leave the "
           "weights unchanged and continue, at most ten times in a row. rollback: skip as well, but after three "
           "skips in a row go back to the newest checkpoint, at most three times; the samples since then are "
           "repeated in the same order with the same augmentation, so this helps only against transient causes."},
      {LOCKSTEP_KEY(train, audit_every), .unit = "steps", .range = at_least(0),
       .meaning = "Steps between comparisons of the parameters of all ranks. 0: never."},
      {LOCKSTEP_KEY(train, freeze),
       .meaning = "Patterns of layers or parameters that are not trained, such as [\"conv1\", \"layer[123]*\"]. No "
                  "gradient is computed below the lowest trained layer. A batch normalization without trained "
                  "parameters uses its running statistics and does not change them.",
       .also = {"frozen", "requires_grad", "trainable", "freeze_layers", "frozen_stages"}},
      {LOCKSTEP_KEY(train, freeze_batch_norm),
       .meaning = "Patterns of batch normalizations that use their running statistics and do not change them; [\"*\"]: "
                  "all. Their scale and shift are trained, unless freeze names them.",
       .also = {"freeze_bn", "frozen_bn", "norm_eval", "bn_eval"}},

      {LOCKSTEP_KEY(optimizer, name), .allowed = {"sgd", "rmsprop_tf", "rmsprop", "adam", "adamw", "lars", "ftrl"},
       .meaning = "docs/training.md gives the formulas. rmsprop_tf is TensorFlow's RMSProp, with epsilon inside the "
                  "square root and an initial mean square of 1; rmsprop is PyTorch's.",
       .also = {"optimizer", "optim"}},
      {LOCKSTEP_KEY(optimizer, lr), .range = above(0), .meaning = "Learning rate before schedule and warm-up.",
       .also = {"learning_rate", "base_lr", "init_learning_rate"}},
      {LOCKSTEP_KEY(optimizer, scale_lr), .meaning = "Linear scaling rule: multiplies lr by global batch / 256.",
       .also = {"linear_scaling"}},
      {LOCKSTEP_KEY(optimizer, momentum), .range = zero_to_below_one(),
       .meaning = "sgd, rmsprop_tf, rmsprop and lars: momentum."},
      {LOCKSTEP_KEY(optimizer, nesterov), .meaning = "sgd: Nesterov's momentum."},
      {LOCKSTEP_KEY(optimizer, decay), .range = zero_to_below_one(),
       .meaning = "rmsprop_tf and rmsprop: decay of the mean square.", .also = {"rmsprop_decay", "rho", "alpha"}},
      {LOCKSTEP_KEY(optimizer, epsilon), .range = above(0),
       .meaning = "rmsprop_tf, rmsprop, adam and adamw: constant that keeps the division finite. Typical values are "
                  "1.0 for rmsprop_tf and 1e-8 for the others.",
       .also = {"eps"}},
      {LOCKSTEP_KEY(optimizer, beta1), .range = zero_to_below_one(),
       .meaning = "adam and adamw: decay of the mean gradient.", .also = {"adam_beta1"}},
      {LOCKSTEP_KEY(optimizer, beta2), .range = zero_to_below_one(),
       .meaning = "adam and adamw: decay of the mean squared gradient.", .also = {"adam_beta2"}},
      {LOCKSTEP_KEY(optimizer, trust), .range = above(0),
       .meaning = "lars: trust coefficient; the rate of a weight is multiplied by trust x norm of the weight / norm of "
                  "its gradient.",
       .also = {"trust_coefficient", "eta", "lars_eta"}},
      {LOCKSTEP_KEY(optimizer, l1), .range = at_least(0),
       .meaning = "ftrl: strength of L1 regularization, which makes weights exactly 0.",
       .also = {"l1_regularization_strength"}},
      {LOCKSTEP_KEY(optimizer, l2), .range = at_least(0), .meaning = "ftrl: strength of L2 regularization.",
       .also = {"l2_regularization_strength"}},
      {LOCKSTEP_KEY(optimizer, learning_rate_power), .range = between(-1, 0),
       .meaning = "ftrl: the rate decreases as the sum of squared gradients to this power. 0: constant rate.",
       .also = {"lr_power"}},
      {LOCKSTEP_KEY(optimizer, initial_accumulator), .range = above(0),
       .meaning = "ftrl: initial value of the sums of squared gradients. Networks with hidden layers need a small "
                  "value such as 1e-6; docs/training.md explains why.",
       .also = {"initial_accumulator_value"}},
      {LOCKSTEP_KEY(optimizer, weight_decay), .range = at_least(0),
       .meaning = "Weight decay: added to the gradient as weight_decay x weight (adamw: decoupled).", .also = {"wd"}},
      {LOCKSTEP_KEY(optimizer, decay_norm_and_bias),
       .meaning = "Whether weight decay also applies to biases and to the parameters of batch normalization.",
       .also = {"norm_weight_decay"}},
      {LOCKSTEP_KEY(optimizer, lr_factors),
       .meaning = "Learning rates of layers or parameters, as PATTERN=FACTOR: [\"fc=10\", \"layer*=0.1\"] multiplies "
                  "the rate by these. The first pattern that matches decides. 0: the optimizer does not change them.",
       .also = {"lr_mult", "param_groups", "paramwise", "lr_factor", "learning_rate_factors", "layer_decay"}},

      {LOCKSTEP_KEY(schedule, name),
       .meaning = "Learning rate over time. exponential and step multiply it by decay_rate every decay_epochs, as a "
                  "staircase; piecewise multiplies lr by the factor of the last boundary passed; cosine and linear "
                  "decrease to 0 at the last step. docs/training.md describes each.",
       .also = {"lr_schedule", "scheduler", "lr_scheduler"}},
      {LOCKSTEP_KEY(schedule, warmup_epochs), .unit = "epochs", .range = at_least(0),
       .meaning = "Length of the linear warm-up at the start.", .also = {"warmup", "lr_warmup_epochs"}},
      {LOCKSTEP_KEY(schedule, decay_rate), .range = above_zero_to_one(),
       .meaning = "exponential and step: factor of one step of the staircase.",
       .also = {"gamma", "lr_decay", "learning_rate_decay_factor"}},
      {LOCKSTEP_KEY(schedule, decay_epochs), .unit = "epochs", .range = above(0),
       .meaning = "exponential and step: length of one step of the staircase.",
       .also = {"lr_step_size", "num_epochs_per_decay"}},
      {LOCKSTEP_KEY(schedule, boundaries), .unit = "epochs", .range = above(0),
       .meaning = "piecewise: epochs at which the rate changes, ascending.", .also = {"milestones", "lr_milestones"}},
      {LOCKSTEP_KEY(schedule, factors), .range = at_least(0),
       .meaning = "piecewise: factor of lr from each boundary on; one per boundary.", .also = {"values"}},

      {LOCKSTEP_KEY(ema, decay), .range = zero_to_below_one(),
       .meaning = "Decay of the moving averages of parameters and statistics, which evaluation uses. After n updates "
                  "it is at most (1 + n) / (10 + n). 0: no averages.",
       .also = {"ema_decay"}},

      {LOCKSTEP_KEY(checkpoint, directory), .path = PathRole::output_pattern,
       .meaning = "Directory of checkpoints and logs; every run needs its own. It may contain placeholders, such as "
                  "runs/{model}/lr{optimizer.lr}. Empty: runs/{model}.",
       .also = {"dir", "folder", "path", "output_dir", "train_dir"}},
      {LOCKSTEP_KEY(checkpoint, every_steps), .unit = "steps", .range = at_least(0),
       .meaning = "Steps between saves. 0: do not save by steps.", .also = {"save_every", "save_steps", "save_freq"}},
      {LOCKSTEP_KEY(checkpoint, every_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "Time between saves. 0: do not save by time. The last step is always saved.",
       .also = {"save_secs", "interval"}},
      {LOCKSTEP_KEY(checkpoint, keep), .unit = "files", .range = between(1, 1e6),
       .meaning = "Number of newest checkpoints that are kept.", .also = {"max_to_keep", "keep_last"}},
      {LOCKSTEP_KEY(checkpoint, keep_best),
       .meaning = "Saves after every evaluation with a new best top-1 accuracy (AUC for two classes; of the averages "
                  "if there are any). The link best points to that checkpoint, which is kept. If another save is still "
                  "being written, this one is skipped with a warning."},
      {LOCKSTEP_KEY(checkpoint, on_error),
       .meaning = "What to do if a save cannot be written: continue with a warning, or end the run. A failed last save "
                  "always ends it with an error."},
      {LOCKSTEP_KEY(checkpoint, overwrite),
       .meaning = "Allows resume = \"never\" to start in a directory that contains checkpoints."},
      {LOCKSTEP_KEY(checkpoint, resume), .allowed = {"auto", "never", "must", "latest"}, .path = PathRole::input,
       .meaning = "auto: resume from the newest checkpoint if there is one. never: start fresh in a new directory. "
                  "must or latest: resume, and fail if there is no checkpoint. Or the path of a checkpoint."},
      {LOCKSTEP_KEY(checkpoint, init_from), .path = PathRole::input,
       .meaning =
           "Initial weights: a checkpoint, a safetensors file, an ONNX file, or an HDF5 file whose data sets have the "
           "names of the parameters. A head for another number of classes keeps its random initial values.",
       .also = {"pretrained", "weights", "pretrained_weights"}},
      {LOCKSTEP_KEY(checkpoint, init_exclude),
       .meaning = "Layers or parameters that keep their initial values, or that the file of init_from may contain in "
                  "addition to the model's."},
      {LOCKSTEP_KEY(checkpoint, allow_changes),
       .meaning = "Allows a run to resume from a checkpoint, or to evaluate one, with a data.normalize, data.augment, "
                  "data.exif_orientation, model.image_size, model.bn_epsilon, model.bn_scale, model.transform_input or "
                  "model.mixed_7c_pool that differs from the one used in training."},

      {LOCKSTEP_KEY(eval, every_epochs), .unit = "epochs", .range = at_least(0),
       .meaning = "Epochs between evaluations. 0: do not evaluate by epochs. The final state is always evaluated."},
      {LOCKSTEP_KEY(eval, every_steps), .unit = "steps", .range = at_least(0),
       .meaning = "Steps between evaluations; a value above 0 replaces every_epochs.", .also = {"eval_steps"}},
      {LOCKSTEP_KEY(eval, patience_epochs), .unit = "epochs", .range = at_least(0),
       .meaning = "Early stopping: training ends at the first evaluation that comes this many epochs or more after the "
                  "best one, by the score of checkpoint.keep_best. 0: never.",
       .also = {"patience", "early_stopping", "early_stopping_patience", "early_stop"}},
      {LOCKSTEP_KEY(eval, batch_size), .unit = "samples", .range = between(0, 1e6),
       .meaning = "Samples per rank and forward pass. 0: as in training."},

      {LOCKSTEP_KEY(device, kind), .meaning = "Device to use. auto: a GPU if one is usable.",
       .also = {"device", "type"}},
      {LOCKSTEP_KEY(device, threads), .unit = "threads", .range = between(0, kMostThreads),
       .meaning = "Compute threads per rank. 0: chosen from the cores that this rank may use.",
       .also = {"num_threads"}},
      {LOCKSTEP_KEY(device, share),
       .meaning = "Allows several ranks to use one GPU; their gradients then go through host memory and MPI."},
      {LOCKSTEP_KEY(device, graph),
       .meaning = "auto: capture the step as a CUDA graph and replay it, if no part of the step needs the host and the "
                  "capture succeeds. on: a step that cannot be captured is an error. off: never capture."},
      {LOCKSTEP_KEY(device, tune),
       .meaning = "On a GPU, auto: at the start of a run, rank 0 times the first plans of each convolution, all ranks "
                  "use the fastest ones, and plans.txt keeps them beside the checkpoints. off, or train.deterministic "
                  "= true for a new run: cuDNN's first plans.",
       .also = {"benchmark", "autotune"}},
      {LOCKSTEP_KEY(device, winograd),
       .meaning = "On the CPU: use Winograd's algorithm for convolutions of stride 1 in float32 where it is faster. "
                  "Kernels of 3x3, and of 1x3 and 1x7 in either direction, then take a third to two thirds of the "
                  "time. Its rounding error is about a millionth of the values' size; docs/training.md has details."},
      {LOCKSTEP_KEY(device, deferred),
       .meaning = "For debugging on the CPU: queue work as on a GPU and run it late, with the host two steps ahead. An "
                  "unordered memory access ends the run."},

      {LOCKSTEP_KEY(graph, rewrites), .meaning = "Whether the network is rewritten into a faster, equivalent one. If "
                                                 "results look wrong, disable this first."},
      {LOCKSTEP_KEY(graph, recompute),
       .meaning = "On the CPU: the outputs that the backward pass recomputes, to the same bits, instead of keeping "
                  "them. norms: those of batch norms and of some average pools. convolutions: also those of "
                  "convolutions with at most 288 multiply-adds per output value, which saves a third of the "
                  "activations of inception_v3 for 4 % more time."},

      {LOCKSTEP_KEY(comm, transport),
       .meaning = "Transport of gradients between ranks. auto: NCCL for several ranks with a GPU each; on CPUs shared "
                  "memory within a host and MPI between hosts. mpi: MPI messages, even within a host.",
       .also = {"backend"}},
      {LOCKSTEP_KEY(comm, algorithm), .meaning = "All-reduce algorithm of NCCL. auto: NCCL chooses ring or tree. Over "
                                                 "MPI, ring and auto select reduce-scatter and all-gather."},
      {LOCKSTEP_KEY(comm, bucket_mb), .unit = "MB", .range = between(0, 1e6),
       .meaning = "Approximate size of the gradient buckets. 0: 4 MB on CPUs; with NCCL, the sizes with the shortest "
                  "predicted step.",
       .also = {"bucket_cap_mb", "bucket_size"}},
      {LOCKSTEP_KEY(comm, gradient_dtype),
       .meaning = "Number format of gradients on the wire. bf16 and fp16 halve the traffic; sums over ranks are then "
                  "rounded to 8 and 11 bits, and the largest fp16 value is 65504. Statistics and counts remain "
                  "float32."},
      {LOCKSTEP_KEY(comm, watch_launcher),
       .meaning = "Whether to end an mpirun that hangs while MPI starts. No file has been read by then, so set it to "
                  "false on the command line or in the environment."},

      {LOCKSTEP_KEY(watchdog, enabled),
       .meaning = "Whether ranks without progress are detected. false: all keys of this section are ignored and waits "
                  "between ranks have no limit, for debugging."},
      {LOCKSTEP_KEY(watchdog, warn_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "A rank without progress for this time logs a warning with its phase and step, and a save that takes "
                  "this long is reported. 0: never."},
      {LOCKSTEP_KEY(watchdog, abort_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "A rank that makes no progress for this time, or is waited for this long, ends the run with exit "
                  "code 6. 0: never.",
       .also = {"timeout"}},
      {LOCKSTEP_KEY(watchdog, start_warn_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "warn_seconds for the start, until the data are scanned. 0: as warn_seconds."},
      {LOCKSTEP_KEY(watchdog, start_abort_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "abort_seconds for the start. 0: as abort_seconds."},
      {LOCKSTEP_KEY(watchdog, scan_warn_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "warn_seconds for the scan of the data. 0: as warn_seconds."},
      {LOCKSTEP_KEY(watchdog, scan_abort_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "abort_seconds for the scan of the data. 0: as abort_seconds."},
      {LOCKSTEP_KEY(watchdog, evaluate_warn_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "warn_seconds for an evaluation. 0: as warn_seconds."},
      {LOCKSTEP_KEY(watchdog, evaluate_abort_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "abort_seconds for an evaluation. 0: as abort_seconds."},
      {LOCKSTEP_KEY(watchdog, save_warn_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "warn_seconds for a save. 0: as warn_seconds."},
      {LOCKSTEP_KEY(watchdog, save_abort_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "abort_seconds for a save. 0: as abort_seconds."},

      {LOCKSTEP_KEY(log, every_steps), .unit = "steps", .range = at_least(1), .meaning = "Steps between log lines.",
       .also = {"display_every", "log_interval", "print_freq"}},
      {LOCKSTEP_KEY(log, jsonl),
       .meaning = "File of machine-readable log lines, as a path inside the checkpoint directory. Empty: none."},
      {LOCKSTEP_KEY(log, tensorboard),
       .meaning = "Whether rank 0 writes TensorBoard event files, to the directory tensorboard in the checkpoint "
                  "directory."},
      {LOCKSTEP_KEY(log, histogram_steps), .unit = "steps", .range = at_least(0),
       .meaning = "Steps between histograms of all trained parameters in the event files. 0: none."},
      {LOCKSTEP_KEY(log, progress), .meaning = "auto: a progress bar if mpirun's own output is a terminal, otherwise "
                                               "plain lines. bar, lines: always that."},
      {LOCKSTEP_KEY(log, level),
       .meaning = "Least severe lines that training prints. info: all lines. warning: warnings and errors, without "
                  "progress. error: errors only. metrics.jsonl and the event files do not change.",
       .also = {"verbosity", "log_level", "loglevel"}},
      {LOCKSTEP_KEY(log, time),
       .meaning = "Whether every line begins with the local time. Lines of training steps always do.",
       .also = {"timestamps"}},
      {LOCKSTEP_KEY(log, prometheus_file), .path = PathRole::output_pattern,
       .meaning = "File for the textfile collector of Prometheus's node_exporter, in a directory that it reads; its "
                  "name ends in .prom and may contain placeholders. Rank 0 replaces it with every log line. Empty: "
                  "none.",
       .also = {"prometheus"}},
      {LOCKSTEP_KEY(log, trace_steps), .unit = "steps", .range = between(0, 100),
       .meaning = "Number of steps whose activity on all ranks is traced to trace.json in the checkpoint directory, "
                  "for Perfetto or chrome://tracing, with a table of where their time went. The first two steps are "
                  "left out. 0: none."},
  };
  for (ConfigKey& key : keys) {
    if (!key.member.words.empty()) key.allowed.assign(key.member.words.begin(), key.member.words.end());
  }
  return keys;
}

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = make_keys();
  return keys;
}

std::vector<std::string_view> config_sections() {
  std::vector<std::string_view> sections;
  for (const ConfigKey& key : config_keys()) {
    if (sections.empty() || sections.back() != key.section) sections.push_back(key.section);
  }
  return sections;
}

const ConfigKey* find_config_key(std::string_view full_name) {
  const auto found = std::ranges::find(config_keys(), full_name, &ConfigKey::full_name);
  return found == config_keys().end() ? nullptr : &*found;
}

}  // namespace lockstep
