#include "lockstep/config/suggest.h"

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("an edit is an insertion, a deletion, a replacement or a swap of neighbours") {
  CHECK(edit_distance("seed", "seed", 3) == 0);
  CHECK(edit_distance("sed", "seed", 3) == 1);
  CHECK(edit_distance("seeds", "seed", 3) == 1);
  CHECK(edit_distance("sead", "seed", 3) == 1);
  CHECK(edit_distance("esed", "seed", 3) == 1);
  CHECK(edit_distance("", "seed", 9) == 4);
  CHECK(edit_distance("kitten", "sitting", 9) == 3);
  CHECK(edit_distance("abcdefgh", "zyxwvuts", 2) == 3);
}

TEST_CASE("the nearest word must be near") {
  CHECK(nearest_word("trian", {"model", "train", "data"}) == "train");
  CHECK(nearest_word("horovod", {"model", "train", "data"}).empty());
  CHECK(nearest_word(std::string(1 << 20, 'x'), {"model"}).empty());
}

TEST_CASE("keys are suggested by spelling, section and the names of other programs") {
  using Names = std::vector<std::string>;
  CHECK(suggest_keys("train", "batch-size") == Names{"train.batch_size"});
  CHECK(suggest_keys("Train", "SEED") == Names{"train.seed"});
  CHECK(suggest_keys("train", "sede") == Names{"train.seed"});
  CHECK(suggest_keys("model", "lr") == Names{"optimizer.lr"});
  CHECK(suggest_keys("", "learning_rate") == Names{"optimizer.lr"});
  CHECK(suggest_keys("optimizer", "learning-rate") == Names{"optimizer.lr"});
  CHECK(suggest_keys("optimzer", "name") == Names{"optimizer.name"});
  CHECK(suggest_keys("data", "every_steps") == Names{"checkpoint.every_steps", "eval.every_steps", "log.every_steps"});
  CHECK(suggest_keys("train", "zzzzzzzzz").empty());
}

TEST_CASE("suggestions end the message as a question") {
  CHECK(did_you_mean({}).empty());
  CHECK(did_you_mean({"a"}) == "; did you mean a?");
  CHECK(did_you_mean({"a", "b"}) == "; did you mean a or b?");
}
