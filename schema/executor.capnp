@0xd2ee4d35b3f1c7a8;
# What kernel and executor say to each other: one message a packet on a socket pair, each request with a deadline.
# Descriptors ride with the packet (SCM_RIGHTS); which ones is said at each request.

using B = import "bulkhead.capnp";

struct Request {
  id @0 :UInt64;              # Repeated in the reply.
  union {
    describe @1 :Void;
    openSession @2 :OpenSession;
    closeSession @3 :UInt32;          # The session; answered when its work has passed and its memory is gone. `quiescent` first
                                      # where all is gone but host memory that its kernels reached, which stays mapped in its
                                      # slot until no kernel runs on the device: until `ok`, the slot is nobody's. Where the
                                      # executor had ended it, `sessionEnded` came before the first answer.
    mapArena @4 :Range;               # New memory, scrubbed before it is seen. Session pauses while its sinks are replaced;
                                      # `outOfMemory` where its work runs on beyond the deadline.
    unmapArena @5 :Range;             # What is mapped there goes, however long the session's work takes to pass:
                                      # `quiescent` once it has, `ok` once the memory is given back, scrubbed first where
                                      # nobody else has it, and sinks are in its place. Host memory too: it is `ok` when it
                                      # is not registered any more, at a moment when no kernel runs on the device.
    bind @6 :Bind;
    registerHost @7 :RegisterHost;    # One descriptor: the memfd. Where it has an address, the session pauses, as for `mapArena`.
    unbind @8 :Unbind;                # Refused from the answer on.
    drain @9 :UInt32;                 # Answered once everything the session submitted before has passed.
    loadImage @10 :LoadImage;         # One descriptor: the sealed memfd with the canonical PTX, a zero, and what is claimed of it.
    unloadImage @11 :Name;
    allowDynamicShared @12 :AllowDynamicShared;
    fence @13 :Fence;                 # Answered when the fence has passed.
    share @14 :Share;                 # `to` pauses while the memory is mapped in it, as for `mapArena`.
    split @15 :Split;                 # The session pauses while its memory is copied into two pieces.
    exportArena @16 :Range;           # One arena, or piece of one: answered with `exported`.
    adoptArena @17 :Range;            # One descriptor: an arena of another executor's, mapped as it is.
    resume @18 :Resume;               # One descriptor: the ring's memfd. A session that was opened without one starts.
    swapArea @19 :SwapArea;           # One descriptor: a memfd that the session's memory is swapped to. It takes the place of
                                      # the one before, unless the session's memory lies in that. Without a descriptor
                                      # and bytes: the one before is given back.
    swapOut @20 :Swap;                # The session is held, its memory copied out and given up. Without arenas: it is held.
    swapIn @21 :Swap;                 # New memory, copied in; the session goes on. Without arenas: it goes on.
    activity @22 :Void;
    reserve @23 :Reserve;
    addModule @24 :AddModule;         # One descriptor: a memfd with the module's gates. Answered once its window is there, all of
                                      # whose bytes are zero.
    removeModule @25 :UInt32;         # Granted to nobody any more, and all has passed that could call its gates.
    grantModule @26 :GrantModule;     # What the session loads from then on may call the module's gates.
    revokeModule @27 :GrantModule;    # Launches of what calls them are refused from the answer on; what was submitted runs on.
    readModule @28 :ModulePiece;      # Answered with `piece`.
    writeModule @29 :ModulePiece;
    mapModule @30 :UInt32;            # One descriptor: a memfd of the host memory that the module's window ends with. Before anybody
                                      # is granted the module, and once.
    watchModule @31 :UInt32;          # One descriptor: a memfd of a page that counts launches in flight whose entries call the
                                      # module's gates, which is sealed when this is answered. Once.
    closeModule @32 :UInt32;          # Its host half has ended: what its gates keep in variables is zero from the answer on, so that
                                      # those of kernels that run find nothing that is open. Does not wait for kernels.
    exportModule @33 :UInt32;         # The device memory of its window: answered with `exported`.
    adoptModule @34 :UInt32;          # One descriptor: the device memory of the window of a module that was added to adopt it,
                                      # as another executor has it. Before anybody is granted the module, and once.
    loadNative @35 :Name;             # One descriptor: the sealed memfd with an image as the driver takes it. Answered with `loaded`,
                                      # without entries. Only of executors that were started for one isolated session.
    nativeEntry @36 :Native;          # Answered with `loaded`, with one entry.
    nativeAttribute @37 :NativeAttribute;
    nativeNames @40 :Name;            # The names of an image's entries: answered with `names`, or `limitReached` where they are many.
    askDriver @39 :AskDriver;         # Answered with `words`.
    importArena @42 :Range;           # One descriptor: memory of another session's, as that session's executor exported it. Nobody
                                      # scrubs it here, or cuts or swaps it. Answered as `mapArena`.
    takenMemory @41 :Void;            # What each process has taken of the device, by NVIDIA's word: answered with `words`, a process's
                                      # number and bytes in turns; for number 0 what is taken of it in all, where it is known of all
                                      # processes what they have of that. None where nobody tells.
    nativeVariable @38 :Native;       # Answered with `variable`: records name it as a buffer from then on.
    endSession @43 :SessionEnded;     # Nothing of it is submitted any more, its kernels are told to end, and what waits to load code
                                      # for it gives up. It is there until `closeSession`. Answered at once.
  }
}

struct AskDriver {
  entry @0 :Name;             # Looked at where the question is about one.
  question @1 :B.Question;
  words @2 :List(UInt64);
}

struct NativeAttribute {
  entry @0 :Name;             # As `nativeEntry` named it.
  attribute @1 :UInt32;       # A CUfunction_attribute.
  value @2 :Int32;
}

struct Native {
  # An entry, or a variable, of an image that was loaded by `loadNative`, and how records will name it.
  image @0 :Name;
  name @1 :Text;
  handle @2 :B.Handle;
}

struct AddModule {
  module @0 :UInt32;          # A number that no module had before.
  bytes @1 :UInt64;           # Of its protected window: a power of two.
  hostBytes @2 :UInt64;       # Of those, host memory, which the window ends with and `mapModule` brings.
  adopts @3 :Bool;            # No memory is made for it: `adoptModule` brings another executor's.
}

struct GrantModule {
  session @0 :UInt32;
  module @1 :UInt32;
  caller @2 :UInt64;          # What the gates learn of who calls them,
  badge @3 :UInt64;           # and what the module's host half fixed when it gave them away.
}

struct ModulePiece {
  module @0 :UInt32;
  offset @1 :UInt64;
  bytes @2 :UInt64;           # To be read, at most 64 KiB.
  data @3 :Data;              # To be written.
}

struct Reserve {
  # Records may name streams and events below these numbers from the answer on.
  session @0 :UInt32;
  streams @1 :UInt32;
  events @2 :UInt32;
}

struct Name {
  session @0 :UInt32;
  handle @1 :B.Handle;
}

struct OpenSession {
  # One descriptor: the ring's memfd. Without it, as a standby is asked, the session takes no records until `resume`.
  session @0 :UInt32;
  slot @1 :UInt32;            # Which slot of device addresses; the executor computes the rest.
  streams @2 :UInt32 = 64;    # Records may name streams and events below these numbers.
  events @3 :UInt32 = 4096;
}

struct Resume {
  session @0 :UInt32;
  lost @1 :Bool;              # Work was lost: all that was taken from the ring counts as passed and refused.
  times @2 :UInt32;           # How often the session has moved. Its client takes no refusal for one of before.
}

struct Bind {
  session @0 :UInt32;
  bindings @1 :List(Binding);
}

struct Binding {
  handle @0 :B.Handle;
  union {
    buffer @1 :BoundRange;
    entry @2 :Name;           # An entry that another session loaded.
  }
}

struct BoundRange {
  address @0 :UInt64;
  bytes @1 :UInt64;
  writable @2 :Bool;          # By copies and fills; what kernels may do, the half of the slot says.
}

struct Unbind {
  session @0 :UInt32;
  runs @1 :List(Run);         # Those that are not bound count as unbound.
}

struct Run {                  # Handles of slots that follow each other, all of one generation.
  slot @0 :UInt32;            # The least slot.
  generation @1 :UInt32;
  count @2 :UInt32;           # How many slots. Those beyond the table's end are not bound.
}

struct Share {
  from @0 :Range;             # A whole arena or piece.
  to @1 :Range;               # In the half of the other session's slot that says what kernels may do.
}

struct Split {
  arena @0 :Range;            # A whole arena or piece.
  at @1 :UInt64;              # Where the second piece starts: a multiple of 2 MiB.
  keep @2 :Bool;              # The memory is left as it is, for a standby that scrubs it; and the session stays held until
                              # a `swapIn` without arenas.
}

struct SwapArea {
  session @0 :UInt32;
  bytes @1 :UInt64;
}

struct Swap {
  session @0 :UInt32;
  arenas @1 :List(Span);      # In the order they lie in the swap area, without gaps. What is at address 0 is not swapped
                              # in: it was freed meanwhile.
  copy @2 :Bool;              # Else only the mappings go (a standby's), and `swapIn` is not used.
  hold @3 :Bool;              # `swapIn`: the session stays held, as for a standby that has to adopt the memory first.
  patienceMs @4 :UInt32;      # `swapOut`: how long the session's work is waited for; 0 for as long as for `mapArena`.
}

struct Span {
  address @0 :UInt64;
  bytes @1 :UInt64;
}

struct Range {
  session @0 :UInt32;
  address @1 :UInt64;
  bytes @2 :UInt64;
}

struct RegisterHost {
  name @0 :Name;
  bytes @1 :UInt64;
  address @2 :UInt64;         # Where the session's kernels reach it, in the half of its slot that takes stores and in whole
                              # pages of 2 MiB; 0 where they do not.
}

struct LoadImage {
  name @0 :Name;              # Of the image; its entries are bound by `bindings`.
  entries @1 :List(B.Handle); # Handles for the entries, in the order of the source.
  codeBytesMax @2 :UInt64 = 0xffffffffffffffff;   # `outOfMemory` where its code is more.
  localBytesMax @3 :UInt32 = 0xffffffff;          # The same where a thread of an entry needs more bytes of local memory.
}

struct AllowDynamicShared {
  name @0 :Name;              # Of the entry.
  bytes @1 :UInt32;
}

struct Fence {
  session @0 :UInt32;
  stream @1 :UInt32;
  position @2 :UInt64;
}

struct Reply {
  id @0 :UInt64;
  union {
    ok @1 :Void;
    error @2 :B.Error;
    device @3 :B.Device;
    opened @4 :Void;          # One descriptor: the completion page's memfd, sealed against future writes.
    loaded @5 :List(B.Entry);
    sessionEnded @6 :SessionEnded;   # Not an answer (id 0): the executor ended a session. Said before its client can know.
    quiescent @7 :Void;       # The first of two answers.
    exported @8 :Void;        # One descriptor.
    wanted @9 :UInt32;        # Not an answer (id 0): a session that is swapped out has records in its ring.
    activity @10 :List(Activity);
    piece @14 :Data;          # Of a module's window.
    variable @15 :Span;
    words @16 :List(UInt64);
    names @17 :List(Text);
  }
  codeBytes @11 :UInt64;      # With `loaded`: how much code that is,
  compileMs @12 :UInt32;      # and how long the executor compiled it,
  origin @13 :Origin;         # and where it came from.
  localBytes @18 :UInt32;     # With each reply: how many bytes of local memory for a thread the driver keeps ready.
}

enum Origin {
  compiled @0;
  kept @1;                    # It was compiled before.
  loaded @2;                  # Somebody had it loaded already.
}

struct Activity {
  session @0 :UInt32;
  idleNs @1 :UInt64;          # Since the session last submitted something.
  inFlight @2 :UInt32;
  stuckMs @3 :UInt32;         # For how long nothing of its work has passed on a stream that has some.
}

struct SessionEnded {
  session @0 :UInt32;
  error @1 :B.Error;
}
