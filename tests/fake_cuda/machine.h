// A machine with CUDA cards that do not exist: what the stand-ins of NVIDIA's libraries share.
//
// A card's memory is the host's, and copies are made. Kernels compute nothing. Work on a stream is done when it is
// asked for or, with FAKE_CUDA_LATE=1, when something waits for it. Every call is counted.
//
// Settings, read once from the environment:
//   FAKE_CUDA_GPUS     cards of the machine (4)
//   FAKE_CUDA_MEMORY   bytes of each card (8 GiB)
//   FAKE_CUDA_LATE     streams work late
//   FAKE_CUDA_MIG      1: the cards are in MIG mode, and a process sees one slice, of the first card that it is shown
//   FAKE_CUDA_FASTEST  the driver's number of a card of another model, which CUDA lists first, unless
//                      CUDA_DEVICE_ORDER=PCI_BUS_ID
//   FAKE_CUDA_BROKEN   the cudaError that every first call answers, such as 35: the driver is too old
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace [[gnu::visibility("default")]] machine {  // libnccl uses it, too

constexpr int kMostCards = 64;
constexpr std::size_t kContextBytes = std::size_t{500} << 20;  // what a context takes of its card

// Held in every call: streams are worked off by whichever thread waits for them.
std::recursive_mutex& lock();

// A card that CUDA_VISIBLE_DEVICES shows. A slice is a part of a card, as MIG makes them.
struct Card {
  std::string uuid;
  int number;  // among the machine's cards
  bool slice;
};

// Work in the order in which it was asked for.
class Stream {
 public:
  explicit Stream(int card) : card_(card) {}

  void ask(std::function<void()> work);
  void work_off(long until);
  void work_off() { work_off(asked_); }

  int card() const { return card_; }
  long asked() const { return asked_; }
  long done() const { return done_; }

 private:
  int card_;
  std::deque<std::function<void()>> waiting_;
  long asked_ = 0;
  long done_ = 0;
};

// Starting CUDA reads CUDA_VISIBLE_DEVICES, once.
void start();
bool started();
int broken();
int fastest_card();  // -1 where all are alike
int card_count();
const Card& card(int index);
std::size_t card_bytes();

int current();
void set_current(int index);

// A context is made by the first call that needs one on its card.
void make_context(int index);
bool has_context(int index);
std::size_t bytes_taken(int index);

enum class Kind { kCard, kPinned };
struct Allocation {
  std::size_t bytes;
  int card;
  Kind kind;
};
void* allocate(std::size_t bytes, Kind kind);  // null where the card has no room
void release(void* address);
void* reserve(std::size_t bytes);  // addresses alone, of no card yet
void free_reserved(void* address, std::size_t bytes);
bool map(void* address, std::size_t bytes, int card);  // false where the card has no room
void unmap(void* address);
const Allocation* find(const void* address);

// A stream by its handle; 0, 1 and 2 are names of the current card's default stream.
Stream* stream(cudaStream_t handle);
cudaStream_t make_stream();
void work_off_card(int index);

void count(const std::string& what);

}  // namespace machine
