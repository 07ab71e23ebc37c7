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
}
