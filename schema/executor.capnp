@0xd2ee4d35b3f1c7a8;
# What kernel and executor say to each other: one message a packet on a socket pair, each request with a deadline.
# Descriptors ride with the packet (SCM_RIGHTS); which ones is said at each request.

using B = import "bulkhead.capnp";

struct Request {
  id @0 :UInt64;              # Repeated in the reply.
  union {
    describe @1 :Void;
    openSession @2 :OpenSession;
    closeSession @3 :UInt32;          # The session; answered when its work has passed and its memory is gone.
    mapArena @4 :Range;               # Session pauses while its sinks are replaced; scrubbed before it is seen.
    unmapArena @5 :Range;
    bindBuffer @6 :BindBuffer;
    registerHost @7 :RegisterHost;    # One descriptor: the memfd.
    unbind @8 :Name;                  # Buffers and host memory: refused from the answer on.
    drain @9 :UInt32;                 # Answered once everything the session submitted before has passed.
    loadImage @10 :LoadImage;         # One descriptor: the sealed memfd with the canonical PTX.
    unloadImage @11 :Name;
    allowDynamicShared @12 :AllowDynamicShared;
    fence @13 :Fence;                 # Answered when the fence has passed.
  }
}

struct Name {
  session @0 :UInt32;
  handle @1 :B.Handle;
}

struct OpenSession {
  # One descriptor: the ring's memfd.
  session @0 :UInt32;
  slot @1 :UInt32;            # Which slot of device addresses; the executor computes the rest.
}

struct Range {
  session @0 :UInt32;
  address @1 :UInt64;
  bytes @2 :UInt64;
}

struct BindBuffer {
  name @0 :Name;
  address @1 :UInt64;
  bytes @2 :UInt64;
}

struct RegisterHost {
  name @0 :Name;
  bytes @1 :UInt64;
}

struct LoadImage {
  name @0 :Name;              # Of the image; its entries are bound by `bindings`.
  entries @1 :List(B.Handle); # Handles for the entries, in the order of the source.
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
    sessionEnded @6 :SessionEnded;   # Not an answer (id 0): the executor ended a session.
  }
}

struct SessionEnded {
  session @0 :UInt32;
  error @1 :B.Error;
}
