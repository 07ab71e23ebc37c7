@0xb7d1a8a4f0c5e211;
# What clients may ask of the kernel.
#
# Rules that hold for every interface:
#  - No method takes an interface that the client implements: the kernel never calls, stores or re-exports one.
#  - Every method that can fail for the client's reasons answers a union of its result and an `Error`.
#    Cap'n Proto exceptions are left for overload, disconnection and bugs.
#  - File descriptors do not travel here. A method that hands one over, or takes one, names a `Token`: 16 random
#    bytes, good once, to be presented on the descriptor socket (see docs/ARCHITECTURE.md).

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

  openSession @3 (device :UInt32, name :Text) -> (result :Result(SessionOpened));
  # `device` is an index of `listDevices`.

  status @4 () -> (result :Result(Status));
  # Who uses what: for `bulkhead doctor` and people.
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
  memoryBytes @3 :UInt64;
  chargedBytes @4 :UInt64;
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
}

struct SessionOpened {
  session @0 :GpuSession;
  id @1 :UInt32;
  ring @2 :Token;             # Fetch: the ring's memfd, then the completion page's memfd (read-only).
  windowBase @3 :UInt64;      # The session's slot of device addresses.
  windowBytes @4 :UInt64;
}

interface GpuSession {
  # One client's world on one GPU. Dropping the last reference ends it, and everything derived from it.

  allocate @0 (bytes :UInt64) -> (result :Result(BufferCreated));

  allocateHost @1 (bytes :UInt64) -> (result :Result(HostBufferCreated));
  # Host memory that the device can copy from and to without staging.

  offerImage @2 (bytes :UInt64) -> (result :Result(Token));
  # Asks to send an image: present the token with a memfd sealed against write, grow and shrink.

  loadImage @3 (image :Token) -> (result :Result(ModuleLoaded));
  # Guards, verifies, compiles and loads an image that was sent.

  fence @4 (stream :UInt32, position :UInt64) -> (result :Result(FenceCreated));
  # A capability for a point of a stream, for others to wait on.

  memory @5 () -> (result :Result(Memory));

  close @6 () -> (result :Result(Nothing));
  # Ends the session now; answers when its memory has been given back.
}

struct BufferCreated {
  buffer @0 :GpuBuffer;
  handle @1 :Handle;
  address @2 :UInt64;         # Device address, aligned to at least 512 bytes.
  bytes @3 :UInt64;
}

struct HostBufferCreated {
  buffer @0 :GpuBuffer;
  handle @1 :Handle;
  memory @2 :Token;           # Fetch: the memfd.
  bytes @3 :UInt64;           # Rounded up to whole pages.
}

struct ModuleLoaded {
  module @0 :GpuModule;
  entries @1 :List(Entry);
}

struct FenceCreated { fence @0 :GpuFence; }

struct Memory {
  freeBytes @0 :UInt64;
  totalBytes @1 :UInt64;
}

interface GpuBuffer {
  # Device memory, or host memory shared with the device. Dropping the last reference frees it
  # once the work that was submitted before has passed.

  info @0 () -> (result :Result(BufferInfo));
  close @1 () -> (result :Result(Nothing));
}

struct BufferInfo {
  handle @0 :Handle;
  address @1 :UInt64;         # 0 for host memory.
  bytes @2 :UInt64;
}

interface GpuModule {
  # Loaded code.

  entries @0 () -> (result :Result(Entries));
  allowDynamicShared @1 (entry :Handle, bytes :UInt32) -> (result :Result(Nothing));
  close @2 () -> (result :Result(Nothing));
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
  ptxVersion @9 :UInt32;
  binaryVersion @10 :UInt32;
}

struct Parameter {
  offset @0 :UInt32;
  bytes @1 :UInt32;
}

interface GpuFence {
  wait @0 (timeoutMs :UInt32) -> (result :Result(FenceState));
  # Answers once the fence has passed, the timeout has, or the session is over.
}

struct FenceState { passed @0 :Bool; }
