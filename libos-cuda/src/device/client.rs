pub(crate) use bulkhead_client::{
    Buffer, Device, DeviceRange, Entry, Event, Fence, HostBuffer, HostSpan, Image, Import, Launch, Options,
    Pattern, Session, Stream,
};
