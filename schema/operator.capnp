@0x9d1f3a5be7c24608;
# What the operator may ask of the kernel, on a socket of its own that is served when no client gets in.

using B = import "bulkhead.capnp";

interface Operator {
  # The bootstrap capability of a connection to `operator.sock`. The rules of bulkhead.capnp hold.

  hello @0 (version :UInt32) -> (result :B.Result(B.Nothing));
  # First call; others answer `protocol` before it. `version` is `limits.PROTOCOL_VERSION`.

  status @1 () -> (result :B.Result(B.Status));
  # What clients are told too.

  evict @2 (session :UInt32) -> (result :B.Result(B.Nothing));
  # Ends a session, whoever's it is. Answers when it is over; what it had is given back as ever.

  addModule @3 (module :NewModule) -> (result :B.Result(B.Nothing));
  # A protected module that sessions may claim from now on, as those that were named when the kernel started. Its token is in
  # the runtime directory when this is answered.

  removeModule @4 (name :Text) -> (result :B.Result(B.Nothing));
  # Nobody may claim it any more, and the session that has it ends. Answers when nothing of it is left; `timedOut` where that
  # takes longer, and goes on.

  suspend @5 (session :UInt32) -> (result :B.Result(B.Nothing));
  # Moves a session's memory to host memory, and holds the session until it is resumed. Answers when the memory is there.
  # `timedOut` or `outOfMemory` where its work does not pass or the host has no room: then it goes on.

  resume @6 (session :UInt32) -> (result :B.Result(B.Nothing));
  # Lets a suspended session go on. Answers when its memory is back; `outOfMemory` where there is no room: then it stays
  # suspended.
}

struct NewModule {
  name @0 :Text;              # Letters, digits, `_` and `-`.
  gates @1 :Data;             # The text of its gates.
  bytes @2 :UInt64;           # Of its window: a power of two, from 2 MiB to 32 GiB.
  hostBytes @3 :UInt64;       # Of those, host memory: whole pages of 2 MiB, as the gates' managed variables take.
}
