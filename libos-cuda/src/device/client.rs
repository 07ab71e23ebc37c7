pub(crate) use bulkhead_client::{
    AcceptedGates, Barrier, Buffer, Device, DeviceRange, Entry, Event, Fence, Graph, GraphWork, Heap,
    HostBuffer, HostSpan, Image, Launch, Options, Pattern, Received, RemoteFence, Reservation, Session,
    Share, Signal, Stream,
};
