@0x9c1e0a5b7d3f4e66;
# What a compile process answers on its output: one message.

using B = import "bulkhead.capnp";

struct Compiled {
  union {
    ptx @0 :Ptx;
    error @1 :B.Error;
  }
}

struct Ptx {
  text @0 :Text;              # The guard's canonical print.
  entries @1 :List(Text);     # Names of the entries, in the order of the source.
  data @2 :B.ModuleData;      # What the entries take the address of as their last parameter, if it has any bytes.
  claims @3 :Text;            # What is claimed of the text: the verifier believes none of it, and needs it.
}
