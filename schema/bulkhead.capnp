@0xb7d1a8a4f0c5e211;
# What clients may ask of the kernel.
#
# Rules that hold for every interface:
#  - No method takes an interface that the client implements: the kernel never calls, stores or re-exports one.
#  - Every method that can fail for the client's reasons answers a union of its result and an `Error`.
#    Cap'n Proto exceptions are left for overload, disconnection and bugs.
#  - File descriptors do not travel here. A method that hands one over, or takes one, names a `Token`: 16 random
#    bytes, good once, to be presented on the descriptor socket (see docs/book/src/capability.md).

struct Error {
  code @0 :ErrorCode;
  message @1 :Text;     # What is the matter.
  remedy @2 :Text;      # What to do about it; may be empty.
  device @3 :UInt32;    # CUDA's own error number where the device reported one, else 0.
}

enum ErrorCode {
  internal @0;          # Our fault.
  invalidArgument @1;
  invalidHandle @2;
  notFound @3;
  notPermitted @4;      # Understood, and not allowed.
  notSupported @5;      # Understood, and not there yet.
  outOfMemory @6;
  limitReached @7;
  imageInvalid @8;      # Not an image, or one that does not compile.
  imageRefused @9;      # The guard refuses it; the message holds file, line, column and reason.
  launchResources @10;  # The launch asks for more than the entry or the device has.
  deviceLost @11;       # The GPU context died; `device` says how. The session is over.
  sessionLost @12;      # The session is over for another reason.
  protocol @13;         # The client broke the protocol; its session is over.
  timedOut @14;
  unavailable @15;      # No executor at the moment; try again.
  version @16;          # Client and kernel do not speak the same version.
  revoked @17;          # The capability was taken back.
  workLost @18;         # Work that was submitted was lost with an executor; the data is there, the session goes on.
  launchTimeout @19;    # A kernel of the session ran for longer than it may, and was ended. The session is over.
  trapped @20;          # A thread of a kernel met a trap or a breakpoint and ended; the message says which.
  assertionFailed @21;  # An assertion of a kernel failed, and the thread ended; the message says which.
}

struct Handle {
  # A client's name for a capability in ring records: an allegation until looked up.
  slot @0 :UInt32;
  generation @1 :UInt32;
}

struct Result(T) {
  union {
    ok @0 :T;
    error @1 :Error;
  }
}

struct Nothing {}

struct Token {
  low @0 :UInt64;
  high @1 :UInt64;
}

interface Bulkhead {
  # The bootstrap capability of a connection.

  hello @0 (version :UInt32, client :Text) -> (result :Result(Welcome));
  # First call; others answer `protocol` before it. `version` is `limits.PROTOCOL_VERSION`.

  ping @1 (value :UInt64) -> (value :UInt64);

  listDevices @2 () -> (result :Result(Devices));

  openSession @3 (device :UInt32, name :Text, terms :SessionTerms) -> (result :Result(SessionOpened));
  # `device` is an index of `listDevices`.

  status @4 () -> (result :Result(Status));
  # Who uses what: for `bulkhead status`, `bulkhead doctor` and people.

  restore @5 (token :SturdyToken) -> (result :Result(AnyCapability));
  # A capability that somebody made a token of.
}

struct SturdyToken {
  # 256 random bits that stand for a capability until it is closed, revoked, or the token is used up.
  first @0 :UInt64;
  second @1 :UInt64;
  third @2 :UInt64;
  fourth @3 :UInt64;
}

struct AnyCapability {
  union {
    view @0 :GpuBufferView;
    buffer @1 :GpuBuffer;
    program @2 :GpuProgram;
    peer @3 :GpuPeer;
    fence @4 :GpuFence;
    signal @5 :GpuSignal;
    module @6 :GpuProtectedModule;
    gates @7 :GpuGates;
  }
}

enum Uses {
  one @0;               # The token is good once.
  untilRevoked @1;
}

interface GpuCapability {
  # What can be done with every capability of the tree. Dropping the last reference closes it.

  revoke @0 () -> (result :Result(Revoking));
  # Ends everything derived from it, at once and for good; it stays.

  close @1 () -> (result :Result(Revoking));
  # Ends it and everything derived from it.

  token @2 (uses :Uses) -> (result :Result(SturdyToken));
  # For a process that shares no connection with this one. Ends with the capability.

  dropTokens @3 () -> (result :Result(Nothing));
  # No token of it is good any more. What was restored from one is revoked with `revoke`.
}

struct Revoking {
  revocation @0 :GpuRevocation;
  capabilities @1 :UInt32;    # How many ended.
}

enum Moment {
  severed @0;           # No new work that names what was revoked is admitted.
  quiescent @1;         # No work that can reach it is running or queued.
  reclaimed @2;         # It is scrubbed and given back. Answered at once where its owner keeps it.
}

interface GpuRevocation {
  # A revocation that has begun. Dropping it does not stop it.

  wait @0 (moment :Moment, timeoutMs :UInt32) -> (result :Result(Reached));
}

struct Reached {
  reached @0 :Bool;           # False where the time was up first.
  quarantined @1 :Bool;       # Work that can reach it ran on beyond the deadline: it stays charged and out of reach.
}

struct Welcome {
  version @0 :UInt32;
  kernel @1 :Text;            # Name and version of the kernel.
  descriptorSocket @2 :Text;  # Path of the socket that hands descriptors over.
}

struct Devices { devices @0 :List(Device); }

struct Device {
  index @0 :UInt32;
  backend @1 :Text;           # `software` or `cuda`.
  name @2 :Text;
  uuid @3 :Data;              # 16 bytes.
  memoryBytes @4 :UInt64;
  driverVersion @5 :UInt32;   # As cuDriverGetVersion gives it.
  architecture @6 :UInt32;    # 90 for sm_90.
  attributes @7 :List(Attribute);
  strict @8 :Bool;            # Every access of a kernel is masked or clamped: `serve --guard strict`.
}

struct Attribute {
  number @0 :UInt32;          # A CUdevice_attribute.
  value @1 :Int32;
}

struct Status {
  devices @0 :List(DeviceStatus);
  sessions @1 :List(SessionStatus);
}

struct DeviceStatus {
  index @0 :UInt32;
  executorPid @1 :UInt32;     # 0 while none runs.
  executorStarts @2 :UInt32;  # How often one was started.
  memoryBytes @3 :UInt64;     # That sessions may use.
  chargedBytes @4 :UInt64;
  standbyPid @5 :UInt32;      # 0 while none is ready.
  failovers @6 :UInt32;       # How often a standby took over.
  swapOuts @7 :UInt32;
  swapIns @8 :UInt32;
  swappedBytes @9 :UInt64;    # Moved in and out, in all.
  ledger @10 :List(Column);   # What all sessions together use.
  imagesCompiled @11 :UInt32; # Images that were compiled,
  imagesKept @12 :UInt32;     # whose code had been compiled before and was kept,
  imagesLoaded @13 :UInt32;   # that somebody had loaded already.
  modules @14 :List(ModuleStatus);
  strict @15 :Bool;           # As in `Device`; of the executor that runs.
  warm @16 :UInt32;           # Executors that have started and wait for an isolated session.
  unclaimedBytes @17 :UInt64; # Of the device's memory that is taken, and by no process: sessions may not use it.
}

struct ModuleStatus {
  # A protected module that whoever runs the kernel has named.
  name @0 :Text;
  bytes @1 :UInt64;           # Of its window.
  session @2 :UInt32;         # That has it; 0 for none.
  callers @3 :List(UInt32);   # Sessions that have accepted its gates.
}

struct Column {
  # What is used of one thing that can be used up.
  name @0 :Text;              # `device_bytes`, `streams`, ...: docs/book/src/allocation.md lists them.
  used @1 :UInt64;            # With the sessions that were opened from programs.
  limit @2 :UInt64;           # The lowest that applies; 2^64 - 1 for none.
}

struct Limit {
  name @0 :Text;              # Of a column.
  most @1 :UInt64;
}

struct SessionStatus {
  id @0 :UInt32;
  name @1 :Text;
  device @2 :UInt32;
  pid @3 :UInt32;
  bufferBytes @4 :UInt64;
  arenaBytes @5 :UInt64;
  hostBytes @6 :UInt64;
  capabilities @7 :UInt32;
  lost @8 :Bool;
  parent @9 :UInt32;          # The session whose program it runs; 0 for none.
  priority @10 :Int32;        # Lower is more urgent.
  swappable @11 :Bool;
  swappedBytes @12 :UInt64;   # Of its memory, how much lies in host memory now.
  swaps @13 :UInt32;          # How often it was swapped out.
  granted @14 :UInt32;        # Buffers of others that are mapped in it.
  quarantinedBytes @15 :UInt64;
  ledger @16 :List(Column);
  executorPid @17 :UInt32;    # Of an isolated session, which has an executor of its own; else 0.
  suspended @18 :Bool;        # By the operator: its memory lies in host memory until that resumes it.
  busyMs @19 :UInt32;         # For how long nothing of its work has passed; 0 where it has none.
  suspending @20 :Bool;       # The operator wants that, and its memory is still on the device: its kernels run there.
}

struct SessionTerms {
  # What a session is limited to; 0 is as much as its parent may.
  deviceBytes @0 :UInt64;
  hostBytes @1 :UInt64;
  capabilities @2 :UInt32;
  priority @3 :Int32;         # Lower is more urgent: who is swapped out last. No more urgent than the kernel's operator,
                              # and the parent, allow.
  keepResident @4 :Bool;      # Never swapped out; what it has is then never more than fits.
  limits @5 :List(Limit);     # Of any column, besides those above.
  domain @6 :Domain;          # What keeps it apart from others. A session of a program has that of its parent.
}

enum Domain {
  guarded @0;                 # It shares a context with others: its code is PTX that the guard confines.
  isolated @1;                # It has an executor and a context of its own, which the GPU's MMU keeps apart: its code is what
                              # the driver takes, machine code too.
}

struct SessionOpened {
  session @0 :GpuSession;
  id @1 :UInt32;
  ring @2 :Token;             # Fetch: the ring's memfd, then the completion page's memfd (read-only).
  windowBase @3 :UInt64;      # The session's slot of device addresses.
  windowBytes @4 :UInt64;
}

struct ProgramOpened {
  session @0 :GpuCopySession;
  id @1 :UInt32;
  ring @2 :Token;
  windowBase @3 :UInt64;
  windowBytes @4 :UInt64;
  entries @5 :List(Entry);    # With the handles that this session launches them by.
}

interface GpuCopySession {
  # One client's world on one GPU, in which no code can be loaded: it can copy and fill, and launch the entries of the
  # program that it was opened from, if there are any. Dropping the last reference ends it, and everything derived from it.

  allocate @0 (bytes :UInt64) -> (result :Result(BufferCreated));
  # Memory of its own: rounded up to 2 MiB, scrubbed. Meant to be cut up by the client.

  allocateHost @1 (bytes :UInt64, mapped :Bool) -> (result :Result(HostBufferCreated));
  # Host memory that the device can copy from and to without staging. Where `mapped`, kernels reach it too: it has device
  # addresses, and is rounded up to 2 MiB. It is meant to be cut up by the client.

  fence @2 (stream :UInt32, position :UInt64) -> (result :Result(FenceCreated));
  # A capability for a point of a stream, for others to wait on.

  signal @3 () -> (result :Result(SignalCreated));
  # A fence that its holder signals.

  memory @4 () -> (result :Result(Memory));

  close @5 () -> (result :Result(Nothing));
  # Ends the session now; answers when its memory has been given back.

  accept @6 (view :GpuBufferView, at :UInt64) -> (result :Result(Accepted));
  # Maps a buffer of another session into this one: in the half that takes stores where it is a `GpuBuffer`, in the
  # read-only half where it is a view. Whole pages of 2 MiB: `notSupported` where it does not fill its pages. The result is
  # derived from `view`: when that is revoked, work of this session that runs on beyond the deadline ends the session.
  # `at` is an address of a reservation, for a `GpuBuffer`; 0 leaves the place to the kernel. Memory of `create` is mapped
  # whole, as often as one likes, also in the session that made it, and there in a reservation only.

  peer @7 () -> (result :Result(PeerCreated));
  # A capability to give this session things.

  granted @8 (timeoutMs :UInt32) -> (result :Result(Granted));
  # The next capability that somebody gave this session.

  lost @9 (seen :UInt32, timeoutMs :UInt32) -> (result :Result(Moved));
  # Answers once the session has moved to another executor more than `seen` times: work that was in flight is lost
  # (its fences have passed, with `workLost`), memory and code are as they were. The completion page is a new one.

  ledger @10 () -> (result :Result(Ledger));
  # What the session uses of everything, and how much it may.

  reserve @11 (streams :UInt32, events :UInt32) -> (result :Result(Reserved));
  # From the answer on, records may name streams and events below these numbers. What was reserved stays so.

  create @12 (bytes :UInt64) -> (result :Result(BufferCreated));
  # The same as `allocate`, but mapped nowhere: its address is 0, and no record can name it. Mapped with `accept`.

  reserveAddresses @13 (bytes :UInt64, at :UInt64, alignment :UInt64) -> (result :Result(Addresses));
  # Puts addresses aside where kernels can store, for `accept`: rounded up to 2 MiB, at a multiple of 64 MiB, and of
  # `alignment` (0 or a power of two). At `at` if that can be; else, and where `at` is 0, where the kernel likes.

  releaseAddresses @14 (address :UInt64) -> (result :Result(Nothing));
  # Nothing more is mapped there. Given back once what is mapped there has gone.

  claimModule @15 (token :SturdyToken) -> (result :Result(ModuleClaimed));
  # Makes a protected module that whoever runs the kernel has named, by the token that was written for it. It is this session's,
  # which is charged its window, and ends with it: all of the window is zero, and nobody may call its gates.
  # `unavailable` while another session has it.

  acceptGates @16 (gates :GpuGates) -> (result :Result(GatesCreated));
  # What this session loads from the answer on may call these gates, which know it by its number. The result is derived from
  # `gates`: when that ends, launches of entries that call them are refused with `revoked`, and work of this session
  # that runs on beyond the deadline ends the session.
}

struct ModuleClaimed {
  module @0 :GpuProtectedModule;
  bytes @1 :UInt64;           # Of its window.
}

struct GatesCreated { gates @0 :GpuGates; }

interface GpuProtectedModule extends(GpuCapability) {
  # The host half of a protected module: reads and writes what its gates keep in its window, and says whose kernels may call
  # them.

  read @0 (offset :UInt64, bytes :UInt32) -> (result :Result(ModulePiece));
  # At most 64 KiB of the window, as kernels that run meanwhile happen to leave them.

  write @1 (offset :UInt64, data :Data) -> (result :Result(Nothing));
  # As much, into the window.

  gates @2 (badge :UInt64) -> (result :Result(GatesCreated));
  # The gates alone, to be given away. The gates read `badge` wherever a session calls them that accepted these, or what was
  # derived from these: nobody can change it.

  host @3 () -> (result :Result(ModuleHost));
  # The host memory that the window ends with, to be mapped: `notFound` where it has none. Nobody else is ever given it.

  activity @4 () -> (result :Result(ModuleActivity));
  # A page that tells how many launches are in flight whose entries call the gates, whoever's they are.
}

struct ModulePiece { data @0 :Data; }

struct ModuleHost {
  bytes @0 :UInt64;
  memory @1 :Token;           # Fetch: the memfd.
}

struct ModuleActivity { page @0 :Token; }   # Fetch: the memfd, to be mapped for reading (bulkhead-ring, `Activity`).

interface GpuGates extends(GpuCapability) {
  # That kernels of a session that accepts it may call the gates of a protected module.

  derive @0 () -> (result :Result(GatesCreated));
  # The same, to be given away and taken back by itself.
}

struct Ledger {
  columns @0 :List(Column);
  priority @1 :Int32;         # What the session was given of the one it asked for: lower is more urgent.
}

struct Reserved {
  streams @0 :UInt32;
  events @1 :UInt32;
}

interface GpuSession extends(GpuCopySession) {
  # A session that can load code.

  offerImage @0 (bytes :UInt64) -> (result :Result(Token));
  # Asks for memory for an image of so many bytes. Fetch: a memfd of that size. Write the image to it, unmap it and seal it
  # against write; then load it by the same token.

  loadImage @1 (image :Token, check :Bool) -> (result :Result(ModuleLoaded));
  # Guards, verifies, compiles and loads an image that was written and sealed. With `check` its code tells of every access that is not
  # to memory that the client lists.

  derive @2 (entries :List(Handle), terms :SessionTerms) -> (result :Result(ProgramCreated));
  # A weaker session to be opened by whoever gets it: it launches these entries and no others. It draws on this session's account.

  askDriver @3 (question :Question, entry :Handle, words :List(UInt64)) -> (result :Result(Words));
  # What the driver of an isolated session answers. What the words are: `bulkhead_gpu::Question`.

  output @4 () -> (result :Result(Output));
  # What the session's own executor has written since it was asked last: what kernels printed, and the driver's words on assertions
  # that failed. Also once the session is over. Nothing for a guarded session, whose library prints.
}

struct Output {
  out @0 :Data;
  err @1 :Data;
  more @2 :Bool;              # Ask again: there is more, or may be.
}

enum Question {
  activeClusters @0;          # How many clusters of a launch of the entry are on the device at a time.
  clusterSize @1;             # How many blocks the largest cluster of such a launch may have.
  tensorMapTiled @2;          # A tensor map, which is 16 words; the entry is not looked at.
  tensorMapIm2col @3;
  output @4;                  # Nothing: what kernels have printed that have passed is written out.
  makeArray @5;               # A new array's number.
  freeArray @6;
  makeTexture @7;             # A new texture, as kernels name it.
  freeTexture @8;
  makeSurface @9;             # A new surface, as kernels name it.
  freeSurface @10;
  setLimit @11;               # Nothing: one of the context's limits is set.
}

struct Words { words @0 :List(UInt64); }

interface GpuProgram extends(GpuCapability) {
  # Entries of a session that others may launch, in sessions of their own. With no entries: sessions that only copy.

  open @0 (name :Text) -> (result :Result(ProgramOpened));

  derive @1 (entries :List(Handle), terms :SessionTerms) -> (result :Result(ProgramCreated));
  # Fewer entries (named as in `derive` of the session), a smaller share.
}

struct ProgramCreated { program @0 :GpuProgram; }
struct PeerCreated { peer @0 :GpuPeer; }
struct SignalCreated { signal @0 :GpuSignal; }

struct Granted {
  union {
    none @0 :Void;
    capability @1 :AnyCapability;
  }
}

struct Moved {
  times @0 :UInt32;           # How often it has moved.
  page @1 :Token;             # Fetch: the new completion page's memfd. Only where `times` is above `seen`.
}

interface GpuPeer extends(GpuCapability) {
  # The authority to give a session things, and no other.

  grant @0 (view :GpuBufferView) -> (result :Result(Nothing));
  # A child of `view` waits for the session in `granted`, to be accepted or not.

  grantGates @1 (gates :GpuGates) -> (result :Result(Nothing));
  # The same with gates.
}

struct BufferCreated {
  buffer @0 :GpuBuffer;
  handle @1 :Handle;
  address @2 :UInt64;         # Device address.
  bytes @3 :UInt64;
}

struct Addresses {
  address @0 :UInt64;
  bytes @1 :UInt64;
}

struct Accepted {
  union {
    buffer @0 :GpuBuffer;
    view @1 :GpuBufferView;
  }
  handle @2 :Handle;
  address @3 :UInt64;         # In the session that accepted it.
  bytes @4 :UInt64;
}

struct HostBufferCreated {
  buffer @0 :GpuBuffer;
  handle @1 :Handle;
  memory @2 :Token;           # Fetch: the memfd.
  bytes @3 :UInt64;           # Rounded up to whole pages.
  address @4 :UInt64;         # Device address; 0 where kernels do not reach it.
}

struct ModuleLoaded {
  module @0 :GpuModule;
  entries @1 :List(Entry);
  data @2 :ModuleData;
  byName @3 :Bool;            # No entry is listed: each is asked for (`GpuModule.entry`). So it is in isolated sessions.
}

struct ModuleData {
  # The module-scope variables of loaded code, which lie side by side in one block. The client allocates and fills it,
  # and every entry takes its address as the last of its parameters. Where it has no bytes, there is none.

  bytes @0 :UInt64;           # It begins at a multiple of 512.
  initial @1 :Data;           # What it begins with; the rest is zero.
  relocations @2 :List(Relocation);
  variables @3 :List(DataVariable);
  refused @4 :List(RefusedEntry);
}

struct RefusedEntry {
  # An entry that was left out of loaded code, since the guard has something against it and nothing against the others.

  name @0 :Text;
  why @1 :Text;
}

struct Relocation {
  # A number in the block: the low `bytes` of (address of the block + `to`) >> `shift`.

  at @0 :UInt64;
  to @1 :UInt64;
  shift @2 :UInt8;
  bytes @3 :UInt8;
}

struct DataVariable {
  name @0 :Text;
  at @1 :UInt64;
  bytes @2 :UInt64;
  managed @3 :Bool;           # The host uses it where it lies: the block has to be host memory that kernels reach.
}

struct FenceCreated { fence @0 :GpuFence; }

struct Memory {
  freeBytes @0 :UInt64;
  totalBytes @1 :UInt64;
}

interface GpuBufferView extends(GpuCapability) {
  # Memory that its holder may read. Dropping the last reference closes it; memory is given back once the work that was
  # submitted before has passed.

  info @0 () -> (result :Result(BufferInfo));

  derive @1 (offset :UInt64, bytes :UInt64) -> (result :Result(ViewCreated));
  # A part of it, to read.
}

interface GpuBuffer extends(GpuBufferView) {
  # Device memory, or host memory shared with the device, that its holder may read and write.

  deriveBuffer @0 (offset :UInt64, bytes :UInt64) -> (result :Result(BufferCreated));
  # A part of it, to read and write. Of host memory: all of it, which no record can name.

  borrow @1 () -> (result :Result(Borrowed));
  # Host memory that another session gave, to be mapped by the process that asks: all of it, to read and write. It counts as
  # in use until `giveBack`, or until the process has ended: revocations wait for that, and it is charged to its session.
}

struct Borrowed {
  loan @0 :GpuLoan;
  memory @1 :Token;           # Fetch: the memfd.
  bytes @2 :UInt64;
}

interface GpuLoan {
  # Host memory that a process has borrowed. When this is dropped, or what it was borrowed by is revoked, the process has ten
  # seconds to call `giveBack`, or to end; then it is killed.

  recalled @0 (timeoutMs :UInt32) -> (result :Result(Recalled));
  # Waits until the memory is to be given back, or the time is up; whether it is.

  giveBack @1 () -> (result :Result(Nothing));
  # The process has it mapped no more.
}

struct Recalled { recalled @0 :Bool; }

struct ViewCreated {
  view @0 :GpuBufferView;
  handle @1 :Handle;
  address @2 :UInt64;
  bytes @3 :UInt64;
}

struct BufferInfo {
  handle @0 :Handle;          # In the session that it belongs to.
  address @1 :UInt64;         # 0 for host memory that kernels do not reach, and for memory that lies nowhere.
  bytes @2 :UInt64;
  session @3 :UInt32;         # The session that it belongs to.
  writable @4 :Bool;
}

interface GpuModule {
  # Loaded code.

  entries @0 () -> (result :Result(Entries));
  allowDynamicShared @1 (entry :Handle, bytes :UInt32) -> (result :Result(Nothing));
  close @2 () -> (result :Result(Nothing));

  entry @3 (name :Text) -> (result :Result(Entry));
  # The entry of a name, where `ModuleLoaded.byName` says so.
  setAttribute @4 (entry :Handle, attribute :UInt32, value :Int32) -> (result :Result(Nothing));
  # Sets a CUfunction_attribute of such an entry.
  variable @5 (name :Text) -> (result :Result(Variable));
  # The module-scope variable of a name, likewise.
  names @6 () -> (result :Result(Names));
  # The names of its entries, where they are few.
}

struct Names { names @0 :List(Text); }

struct Variable {
  handle @0 :Handle;                # By which records name it: it is a buffer.
  address @1 :UInt64;
  bytes @2 :UInt64;
}

struct Entries { entries @0 :List(Entry); }

struct Entry {
  name @0 :Text;
  handle @1 :Handle;
  parameters @2 :List(Parameter);   # Those the source declares; the guard's own are not shown.
  parameterBytes @3 :UInt32;        # Up to where the client fills the parameter block.
  threadsMax @4 :UInt32;
  sharedBytes @5 :UInt32;
  localBytes @6 :UInt32;
  constantBytes @7 :UInt32;
  registers @8 :UInt32;
  ptxVersion @9 :UInt32;            # Of the virtual architecture that the text is for: 75 for `.target sm_75`.
  binaryVersion @10 :UInt32;        # Of the architecture that it was compiled for.
}

struct Parameter {
  offset @0 :UInt32;
  bytes @1 :UInt32;
}

interface GpuFence extends(GpuCapability) {
  # A completion point that its holder may wait for.

  wait @0 (timeoutMs :UInt32) -> (result :Result(FenceState));
  # Answers once the fence has passed, the timeout has, or the session is over.
}

interface GpuSignal extends(GpuFence) {
  # A fence that its holder signals.

  signal @0 () -> (result :Result(Nothing));

  fence @1 () -> (result :Result(FenceCreated));
  # The same to wait for only.
}

struct FenceState { passed @0 :Bool; }
