#include "lockstep/config/keys.h"

#include <type_traits>
#include <utility>

#include "lockstep/base/cpu_cores.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

template <auto Section, auto Member>
using MemberType = std::remove_cvref_t<decltype(std::declval<const Config&>().*Section.*Member)>;

template <auto Section, auto Member>
requires WordEnum<MemberType<Section, Member>> ConfigMember member() {
  using T = MemberType<Section, Member>;
  return {.type = ConfigType::text,
          .get = [](const Config& config) { return ConfigValue(std::string(word(config.*Section.*Member))); },
          .set =
              [](Config& config, ConfigValue value) {
                const auto known = find_word<T>(std::get<std::string>(value));
                require(known.has_value(), "a word of the configuration was not checked");
                config.*Section.*Member = *known;
              },
          .words = kWords<T>};
}

template <auto Section, auto Member>
ConfigMember member() {
  using T = MemberType<Section, Member>;
  return {.type = static_cast<ConfigType>(ConfigValue(T{}).index()),
          .get = [](const Config& config) { return ConfigValue(config.*Section.*Member); },
          .set = [](Config& config, ConfigValue value) { config.*Section.*Member = std::get<T>(std::move(value)); }};
}

ConfigRange at_least(double low) { return {.low = low}; }
ConfigRange above(double low) { return {.low = low, .low_open = true}; }
ConfigRange between(double low, double high) { return {.low = low, .high = high}; }
ConfigRange zero_to_below_one() { return {.low = 0, .high = 1, .high_open = true}; }
ConfigRange above_zero_to_one() { return {.low = 0, .high = 1, .low_open = true}; }

// Section, name and member of a key cannot disagree: all three come from the same two words.
#define LOCKSTEP_KEY(section_, name_) \
  .section = #section_, .name = #name_, .member = member<&Config::section_, &decltype(Config::section_)::name_>()

std::vector<ConfigKey> make_keys() {
  return {
      {LOCKSTEP_KEY(model, name), .allowed = {"inception_v3", "cifar10_cnn", "resnet50", "wide_mlp"},
       .meaning = "The network.", .also = {"model", "arch", "architecture"}},
      {LOCKSTEP_KEY(model, classes), .range = between(2, 1e6),
       .meaning = "Number of classes; labels are 0 to classes - 1.", .also = {"num_classes", "n_classes"}},
      {LOCKSTEP_KEY(model, image_size), .unit = "pixels", .range = between(1, 8192),
       .meaning = "Height and width of the network's input. inception_v3 needs at least 75.",
       .also = {"input_size", "size", "crop_size"}},
      {LOCKSTEP_KEY(model, aux_weight), .range = at_least(0),
       .meaning =
           "Weight of the auxiliary head's loss; 0 leaves the head out. Above 0 it needs an image_size of 299 or "
           "more. Models without such a head ignore it.",
       .also = {"aux_loss_weight", "aux"}},
      {LOCKSTEP_KEY(model, dropout), .range = zero_to_below_one(),
       .meaning = "Probability that an input of the last layer is dropped in training.",
       .also = {"dropout_rate", "drop_rate"}},
      {LOCKSTEP_KEY(model, init),
       .meaning = "Start values of the weights: truncated normal with the model's own deviations, or with deviations "
                  "from each layer's number of inputs."},
      {LOCKSTEP_KEY(model, bn_momentum), .range = above_zero_to_one(),
       .meaning = "Weight of a step's statistics in batch normalization's running ones (1 minus TensorFlow's decay).",
       .also = {"batch_norm_momentum"}},
      {LOCKSTEP_KEY(model, bn_epsilon), .range = above(0), .meaning = "Added to the variance in batch normalization.",
       .also = {"bn_eps", "batch_norm_epsilon"}},
      {LOCKSTEP_KEY(model, bn_scale), .meaning = "Whether batch normalization has a trained scale (gamma)."},
      {LOCKSTEP_KEY(model, transform_input),
       .meaning =
           "inception_v3: remaps input that data.normalize = \"torchvision\" normalized to [-1, 1], as torchvision "
           "does for its ported weights."},
      {LOCKSTEP_KEY(model, mixed_7c_pool),
       .meaning =
           "inception_v3: how the pooling branch of Mixed_7c pools. max is tf_cnn_benchmarks' network; weights fit "
           "only the one they were trained with."},
      {LOCKSTEP_KEY(model, hidden), .range = between(1, 1e6),
       .meaning = "Widths of the hidden layers of wide_mlp; other models ignore it."},
      {LOCKSTEP_KEY(model, vocabulary), .range = between(1, 2147483647),
       .meaning = "Ids of wide_mlp are below this; other models ignore it."},
      {LOCKSTEP_KEY(model, max_ids), .unit = "ids", .range = between(1, 1e6),
       .meaning = "The most ids that a sample of wide_mlp has; other models ignore it."},

      {LOCKSTEP_KEY(data, format),
       .allowed = {"tfrecord", "folder", "cifar10", "cifar100", "hdf5", "sparse_tfrecord", "synthetic"},
       .meaning = "How the data are stored; docs/data.md has each. synthetic makes images up and reads nothing."},
      {LOCKSTEP_KEY(data, train), .path = PathRole::input_pattern,
       .meaning = "Training data: a path, a glob or a list of them.",
       .also = {"data_dir", "train_dir", "path", "training"}},
      {LOCKSTEP_KEY(data, validation), .path = PathRole::input_pattern,
       .meaning = "Validation data, likewise (synthetic: any word). Empty: no evaluation.",
       .also = {"val", "valid", "eval", "test"}},
      {LOCKSTEP_KEY(data, validation_fraction), .range = zero_to_below_one(),
       .meaning =
           "Where data.validation is empty: the share of data.train that is kept for evaluation and not trained on; "
           "which samples depends on their place in the data alone. 0: none.",
       .also = {"val_split", "validation_split"}},
      {LOCKSTEP_KEY(data, label_offset), .range = between(-1000000, 1000000),
       .meaning = "Added to every stored label; ImageNet TFRecords hold 1 to 1000, so -1 gives 0 to 999."},
      {LOCKSTEP_KEY(data, label_key), .meaning = "sparse_tfrecord: the feature that holds the label."},
      {LOCKSTEP_KEY(data, ids_key), .meaning = "sparse_tfrecord: the feature that holds the ids."},
      {LOCKSTEP_KEY(data, values_key),
       .meaning = "sparse_tfrecord: the feature that holds the ids' values; without it every value is 1."},
      {LOCKSTEP_KEY(data, augment), .allowed = {"inception", "torchvision", "crop_flip", "none"},
       .meaning = "Random changes of training images. Evaluation uses the crop that belongs to it."},
      {LOCKSTEP_KEY(data, normalize), .allowed = {"inception", "torchvision", "none"},
       .meaning = "Pixel values: inception maps them to [-1, 1], torchvision subtracts ImageNet's mean and divides by "
                  "its deviation, none takes what is stored."},
      {LOCKSTEP_KEY(data, shuffle), .meaning = "A new random order every epoch."},
      {LOCKSTEP_KEY(data, shuffle_block), .unit = "records", .range = at_least(0),
       .meaning = "0: full random order. N: blocks of N consecutive records, for slow storage.",
       .also = {"shuffle_buffer"}},
      {LOCKSTEP_KEY(data, workers), .unit = "threads", .range = between(0, 1024),
       .meaning = "Threads a rank that read and decode. 0: from the cores this rank may use.",
       .also = {"num_workers", "threads"}},
      {LOCKSTEP_KEY(data, prefetch), .unit = "batches", .range = between(1, 256),
       .meaning = "Batches a rank that are prepared ahead of the one in use. More of them bridge a longer pause of the "
                  "storage, at the cost of their memory.",
       .also = {"prefetch_factor", "prefetch_buffer", "queue_depth"}},
      {LOCKSTEP_KEY(data, max_pixels), .unit = "pixels", .range = between(1, 4e9),
       .meaning = "Height times width that an encoded picture may have; a larger one is a bad record. The default is "
                  "above any camera."},
      {LOCKSTEP_KEY(data, exif_orientation),
       .meaning =
           "Turns JPEGs upright as their EXIF block says, in training and evaluation alike. The published ImageNet "
           "recipes take pixels as they are stored."},
      {LOCKSTEP_KEY(data, jpeg_scaling),
       .meaning =
           "Training: where the crop of a JPEG is at least three times as large as the network's input, decode a "
           "smaller picture, which is faster and nearly the same. Evaluation always decodes the full size."},
      {LOCKSTEP_KEY(data, bad_records),
       .meaning = "What to do about a record that cannot be read: end the run, or replace it, count it and report it."},

      {LOCKSTEP_KEY(train, batch_size), .unit = "samples", .range = between(1, 1e6),
       .meaning = "Samples a rank and step.", .also = {"batch", "batchsize", "per_rank_batch"}},
      {LOCKSTEP_KEY(train, global_batch), .unit = "samples", .range = between(0, 1e9),
       .meaning = "Instead of batch_size: ranks x batch_size x accumulate. Must divide by ranks x accumulate. 0: use "
                  "batch_size.",
       .also = {"global_batch_size", "total_batch_size"}},
      {LOCKSTEP_KEY(train, epochs), .range = between(0, 1e6),
       .meaning = "Length of training in passes over the data; with steps, whichever comes first. 0: by steps alone.",
       .also = {"num_epochs", "max_epochs", "n_epochs"}},
      {LOCKSTEP_KEY(train, steps), .range = at_least(0), .meaning = "Length of training in steps. 0: by epochs alone.",
       .also = {"max_steps", "num_steps", "num_batches"}},
      {LOCKSTEP_KEY(train, label_smoothing), .range = zero_to_below_one(),
       .meaning = "Share of each target that is spread over all classes."},
      {LOCKSTEP_KEY(train, precision),
       .meaning = "Number format of the layers; parameters are float32 in any case. All but float32 need a GPU.",
       .also = {"dtype", "amp", "fp16"}},
      {LOCKSTEP_KEY(train, sync_batch_norm),
       .meaning = "Batch normalization normalizes over the samples of all ranks instead of each rank's own.",
       .also = {"sync_bn"}},
      {LOCKSTEP_KEY(train, accumulate), .range = between(1, 1e6),
       .meaning = "Batches whose gradients are added up before an update.",
       .also = {"gradient_accumulation_steps", "accumulate_steps"}},
      {LOCKSTEP_KEY(train, clip_norm), .range = at_least(0),
       .meaning = "Largest norm of the whole gradient; longer ones are scaled down to it. 0: no clipping.",
       .also = {"gradient_clip", "max_grad_norm", "grad_clip"}},
      {LOCKSTEP_KEY(train, seed), .range = at_least(0),
       .meaning = "Start values, order, augmentation and dropout are functions of it.",
       .also = {"random_seed", "rng_seed"}},
      {LOCKSTEP_KEY(train, deterministic),
       .meaning = "Only methods whose result is the same bits in every run with the same ranks and threads; on the CPU "
                  "there are no others."},
      {LOCKSTEP_KEY(train, max_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "Stop and save after this time. 0: no limit.", .also = {"time_limit", "max_time"}},
      {LOCKSTEP_KEY(train, not_finite),
       .meaning =
           "When a loss or gradient is not finite: end the run with exit code 4; or leave the weights as they are "
           "and go on (at most ten times in a row); or the same, and after three times in a row go back to the newest "
           "checkpoint (at most three times): the samples since then come again, in the same order and augmented "
           "alike, "
           "so it helps against what does not happen again."},
      {LOCKSTEP_KEY(train, audit_every), .unit = "steps", .range = at_least(0),
       .meaning = "Steps between comparisons of the parameters of all ranks. 0: never."},

      {LOCKSTEP_KEY(optimizer, name), .allowed = {"sgd", "rmsprop_tf", "rmsprop", "adamw", "lars", "ftrl"},
       .meaning = "docs/training.md has each one's formula. rmsprop_tf is TensorFlow's, with epsilon inside the root "
                  "and a mean square that starts at 1; rmsprop is PyTorch's.",
       .also = {"optimizer", "optim"}},
      {LOCKSTEP_KEY(optimizer, lr), .range = above(0), .meaning = "Learning rate before schedule and warm-up.",
       .also = {"learning_rate", "base_lr", "init_learning_rate"}},
      {LOCKSTEP_KEY(optimizer, scale_lr), .meaning = "Linear rule: multiplies lr by global batch / 256.",
       .also = {"linear_scaling"}},
      {LOCKSTEP_KEY(optimizer, momentum), .range = zero_to_below_one(),
       .meaning = "sgd, rmsprop_tf, rmsprop and lars: momentum."},
      {LOCKSTEP_KEY(optimizer, decay), .range = zero_to_below_one(),
       .meaning = "rmsprop_tf and rmsprop: decay of the mean square.", .also = {"rmsprop_decay", "rho", "alpha"}},
      {LOCKSTEP_KEY(optimizer, epsilon), .range = above(0),
       .meaning = "rmsprop_tf, rmsprop and adamw: keeps the division finite. 1.0 suits rmsprop_tf, 1e-8 the others.",
       .also = {"eps"}},
      {LOCKSTEP_KEY(optimizer, beta1), .range = zero_to_below_one(), .meaning = "adamw: decay of the mean gradient.",
       .also = {"adam_beta1"}},
      {LOCKSTEP_KEY(optimizer, beta2), .range = zero_to_below_one(),
       .meaning = "adamw: decay of the mean squared gradient.", .also = {"adam_beta2"}},
      {LOCKSTEP_KEY(optimizer, trust), .range = above(0),
       .meaning = "lars: a weight's rate is this share of its norm over its gradient's.",
       .also = {"trust_coefficient", "eta", "lars_eta"}},
      {LOCKSTEP_KEY(optimizer, l1), .range = at_least(0),
       .meaning = "ftrl: strength of the l1 norm, which makes weights exactly 0.",
       .also = {"l1_regularization_strength"}},
      {LOCKSTEP_KEY(optimizer, l2), .range = at_least(0), .meaning = "ftrl: strength of the squared l2 norm.",
       .also = {"l2_regularization_strength"}},
      {LOCKSTEP_KEY(optimizer, learning_rate_power), .range = between(-1, 0),
       .meaning = "ftrl: the rate falls as the sum of squared gradients to this power. 0: it does not fall.",
       .also = {"lr_power"}},
      {LOCKSTEP_KEY(optimizer, initial_accumulator), .range = above(0),
       .meaning =
           "ftrl: what the sums of squared gradients start with. Networks with hidden layers want it small, 1e-6 "
           "say: docs/training.md has the reason.",
       .also = {"initial_accumulator_value"}},
      {LOCKSTEP_KEY(optimizer, weight_decay), .range = at_least(0),
       .meaning = "Weight decay: added to the gradient as weight_decay x weight (adamw: decoupled).", .also = {"wd"}},
      {LOCKSTEP_KEY(optimizer, decay_norm_and_bias),
       .meaning = "Whether weight decay also acts on biases and batch normalization's parameters.",
       .also = {"norm_weight_decay"}},

      {LOCKSTEP_KEY(schedule, name),
       .meaning = "Learning rate over time: exponential and step multiply by decay_rate every decay_epochs, in stairs; "
                  "piecewise multiplies lr by the factor of the last boundary passed; cosine and linear fall to 0 at "
                  "the last step. docs/training.md has each.",
       .also = {"lr_schedule", "scheduler", "lr_scheduler"}},
      {LOCKSTEP_KEY(schedule, warmup_epochs), .unit = "epochs", .range = at_least(0),
       .meaning = "The rate rises linearly over so many epochs first.", .also = {"warmup", "lr_warmup_epochs"}},
      {LOCKSTEP_KEY(schedule, decay_rate), .range = above_zero_to_one(),
       .meaning = "exponential and step: factor of one stair.",
       .also = {"gamma", "lr_decay", "learning_rate_decay_factor"}},
      {LOCKSTEP_KEY(schedule, decay_epochs), .unit = "epochs", .range = above(0),
       .meaning = "exponential and step: length of one stair.", .also = {"lr_step_size", "num_epochs_per_decay"}},
      {LOCKSTEP_KEY(schedule, boundaries), .unit = "epochs", .range = above(0),
       .meaning = "piecewise: where the rate changes, ascending.", .also = {"milestones", "lr_milestones"}},
      {LOCKSTEP_KEY(schedule, factors), .range = at_least(0),
       .meaning = "piecewise: what lr is multiplied by from each boundary on, as many as there are boundaries.",
       .also = {"values"}},

      {LOCKSTEP_KEY(ema, decay), .range = zero_to_below_one(),
       .meaning = "Decay of the moving average of parameters and statistics that evaluation uses; after n updates at "
                  "most (1 + n) / (10 + n). 0: no average.",
       .also = {"ema_decay"}},

      {LOCKSTEP_KEY(checkpoint, directory), .path = PathRole::output,
       .meaning = "Folder of checkpoints and logs; one run, one folder. Empty: runs/ and the model's name.",
       .also = {"dir", "folder", "path", "output_dir", "train_dir"}},
      {LOCKSTEP_KEY(checkpoint, every_steps), .unit = "steps", .range = at_least(0),
       .meaning = "Steps between saves. 0: not by steps.", .also = {"save_every", "save_steps", "save_freq"}},
      {LOCKSTEP_KEY(checkpoint, every_seconds), .unit = "seconds", .range = at_least(0),
       .meaning = "Time between saves. 0: not by time. The last step is saved in any case.",
       .also = {"save_secs", "interval"}},
      {LOCKSTEP_KEY(checkpoint, keep), .unit = "files", .range = between(1, 1e6),
       .meaning = "How many of the newest checkpoints stay.", .also = {"max_to_keep", "keep_last"}},
      {LOCKSTEP_KEY(checkpoint, keep_best),
       .meaning =
           "Every evaluation with a new best top-1, for two classes AUC (of the averages where there are any), is "
           "saved, and the link best points at it: it stays as well. While another save is being written it is "
           "skipped, with a warning."},
      {LOCKSTEP_KEY(checkpoint, on_error),
       .meaning = "When a save cannot be written: go on with a warning, or end. A failed last save always fails."},
      {LOCKSTEP_KEY(checkpoint, overwrite),
       .meaning = "Lets resume = \"never\" start in a folder that holds checkpoints."},
      {LOCKSTEP_KEY(checkpoint, resume), .allowed = {"auto", "never", "must", "latest"}, .path = PathRole::input,
       .meaning = "auto: from the newest checkpoint where there is one; never: a fresh run in a fresh folder; must or "
                  "latest: only from a checkpoint; or the path of one."},
      {LOCKSTEP_KEY(checkpoint, init_from), .path = PathRole::input,
       .meaning = "Weights to start with: a checkpoint, or any HDF5 file whose data sets bear the parameters' names. "
                  "Heads for another number of classes start anew.",
       .also = {"pretrained", "weights", "pretrained_weights"}},
      {LOCKSTEP_KEY(checkpoint, init_exclude),
       .meaning = "Layers or parameters that init_from leaves at their start values, or that it may hold beyond the "
                  "model's."},
      {LOCKSTEP_KEY(checkpoint, allow_changes),
       .meaning = "Lets a run go on from a checkpoint, or evaluate one, with another data.normalize, data.augment, "
                  "data.exif_orientation, model.image_size, model.bn_epsilon, model.bn_scale, model.transform_input or "
                  "model.mixed_7c_pool than it was trained with."},

      {LOCKSTEP_KEY(eval, every_epochs), .unit = "epochs", .range = at_least(0),
       .meaning = "Epochs between evaluations. 0: not by epochs. The end is evaluated in any case."},
      {LOCKSTEP_KEY(eval, every_steps), .unit = "steps", .range = at_least(0),
       .meaning = "Steps between evaluations; above 0 it takes the place of every_epochs.", .also = {"eval_steps"}},
      {LOCKSTEP_KEY(eval, batch_size), .unit = "samples", .range = between(0, 1e6),
       .meaning = "Samples a rank and pass. 0: as in training."},

      {LOCKSTEP_KEY(device, kind), .meaning = "Where to compute. auto: on a GPU where one can be used.",
       .also = {"device", "type"}},
      {LOCKSTEP_KEY(device, threads), .unit = "threads", .range = between(0, kMostThreads),
       .meaning = "Compute threads a rank. 0: from the cores this rank may use.", .also = {"num_threads"}},
      {LOCKSTEP_KEY(device, share),
       .meaning = "Lets several ranks compute on one GPU; their gradients then go through host memory and MPI."},
      {LOCKSTEP_KEY(device, graph),
       .meaning = "auto: a GPU captures the step once and replays it, where no part of it needs the host. off: never."},
      {LOCKSTEP_KEY(device, winograd),
       .meaning =
           "On the CPU, where oneDNN has it (2.x with AVX-512): 3x3 convolutions of stride 1 by Winograd's method, in "
           "about half the time. It rounds by 0.5 to 4 millionths of the values' size; docs/training.md has more."},
      {LOCKSTEP_KEY(device, deferred),
       .meaning =
           "For finding faults, on the CPU: work is queued as on a GPU and run late, the host two steps ahead, and "
           "an access to memory that nothing orders ends the run."},

      {LOCKSTEP_KEY(graph, rewrites),
       .meaning =
           "Whether the network is rewritten to a faster one that computes the same; the first thing to turn off "
           "when numbers look odd."},

      {LOCKSTEP_KEY(comm, transport),
       .meaning =
           "What carries the gradients between ranks. auto: NCCL where every rank has a GPU of its own; on CPUs memory "
           "that the ranks share where all are on one host; else MPI. mpi: messages, within a host too.",
       .also = {"backend"}},
      {LOCKSTEP_KEY(comm, algorithm),
       .meaning = "How NCCL sums them. Over MPI each rank adds up a share, whether ring or auto is set; no tree."},
      {LOCKSTEP_KEY(comm, bucket_mb), .unit = "MB", .range = between(0, 1e6),
       .meaning = "Gradients travel in buckets of about this size. 0: the default of the backend.",
       .also = {"bucket_cap_mb", "bucket_size"}},
      {LOCKSTEP_KEY(comm, gradient_dtype),
       .meaning = "Number format of gradients on the wire. bf16 and fp16 halve what travels; sums over ranks are then "
                  "rounded to 8 and 11 bits, and fp16 ends at 65504. Statistics and counts stay float32."},

      {LOCKSTEP_KEY(watchdog, enabled),
       .meaning = "Whether ranks that make no progress are noticed. false: nothing of this section applies and waits "
                  "between ranks never end, for work with a debugger."},
      {LOCKSTEP_KEY(watchdog, warn_seconds), .unit = "seconds", .range = at_least(0),
       .meaning =
           "A rank that makes no progress for so long says so, with phase and step; a save that takes so long is "
           "reported. 0: never."},
      {LOCKSTEP_KEY(watchdog, abort_seconds), .unit = "seconds", .range = at_least(0),
       .meaning =
           "A rank that makes no progress for so long, or is waited for so long, ends the run with exit code 6. 0: "
           "never.",
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
       .meaning = "File of machine-readable log lines, a path inside the checkpoint folder. Empty: none."},
      {LOCKSTEP_KEY(log, tensorboard),
       .meaning = "Whether rank 0 writes TensorBoard event files, in the folder tensorboard of the checkpoint folder."},
      {LOCKSTEP_KEY(log, histogram_steps), .unit = "steps", .range = at_least(0),
       .meaning = "Steps between histograms of every trained parameter in the event files. 0: none."},
      {LOCKSTEP_KEY(log, progress),
       .meaning = "auto: a bar when mpirun's own output is a terminal, plain lines elsewhere. lines: always lines."},
      {LOCKSTEP_KEY(log, trace_steps), .unit = "steps", .range = between(0, 100),
       .meaning =
           "Steps of which all ranks' doings are written to trace.json in the checkpoint folder, for Perfetto or "
           "chrome://tracing; the first two steps are left out. 0: none."},
  };
}
#undef LOCKSTEP_KEY

}  // namespace

std::span<const ConfigKey> config_keys() {
  static const std::vector<ConfigKey> keys = [] {
    std::vector<ConfigKey> made = make_keys();
    for (ConfigKey& key : made) {
      if (!key.member.words.empty()) key.allowed.assign(key.member.words.begin(), key.member.words.end());
    }
    return made;
  }();
  return keys;
}

std::vector<std::string_view> config_sections() {
  std::vector<std::string_view> sections;
  for (const ConfigKey& key : config_keys()) {
    if (sections.empty() || sections.back() != key.section) sections.push_back(key.section);
  }
  return sections;
}

const ConfigKey* find_config_key(std::string_view section, std::string_view name) {
  for (const ConfigKey& key : config_keys()) {
    if (key.section == section && key.name == name) return &key;
  }
  return nullptr;
}

const ConfigKey* find_config_key(std::string_view full_name) {
  const size_t dot = full_name.find('.');
  if (dot == std::string_view::npos) return nullptr;
  return find_config_key(full_name.substr(0, dot), full_name.substr(dot + 1));
}

}  // namespace lockstep
