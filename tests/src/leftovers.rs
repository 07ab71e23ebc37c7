//! What a session finds in memory that another one had before.

use bulkhead_client::{Error, Launch, Parameters, Pattern, Stream};

use crate::{
    kernel::Kernel,
    neighbour::{KERNELS, numbers},
};

const STREAM: Stream = Stream::DEFAULT;
const NAME: &str = "one after the other";
const BUFFER_BYTES: usize = 40 << 20;
const PINNED_BYTES: usize = 1 << 20;

/// Has sessions follow each other in one slot, each of which leaves marks wherever it can store, and checks that no
/// session finds any.
///
/// # Errors
/// Where a session does not work.
///
/// # Panics
/// Where something was left.
pub fn are_none(kernel: &Kernel) -> Result<(), Error> {
    let mut window = None;
    for _ in 0..3 {
        let session = kernel.open(NAME);
        assert_eq!(*window.get_or_insert(session.window()), session.window(), "another slot");
        let image = session.load_image(KERNELS)?;
        let buffer = session.allocate(BUFFER_BYTES as u64)?;
        let mut found = vec![1; BUFFER_BYTES];
        session.read(STREAM, &mut found, buffer.all())?;
        assert!(found.iter().all(|byte| *byte == 0), "a buffer holds what was there before");
        let pinned = session.allocate_host(PINNED_BYTES)?;
        let mut found = vec![1; PINNED_BYTES];
        pinned.read(0, &mut found);
        assert!(found.iter().all(|byte| *byte == 0), "pinned memory holds what was there before");

        // Nothing is granted at the end of the half that stores reach: an address there leads to the sink.
        let stray = session.window().0 + session.window().1 / 2 - 4096;
        let seen = session.allocate(4)?;
        let (load, store) = (image.entry("load")?, image.entry("store")?);
        let one = Launch::linear(1, 1);
        let look = || {
            let parameters = Parameters::new().u64(stray).buffer(&seen);
            session.launch(STREAM, &load, &one, &parameters)?;
            let mut word = [0; 4];
            session.read(STREAM, &mut word, seen.all())?;
            Ok::<_, Error>(numbers(&word))
        };
        assert_eq!(look()?, [0], "a sink holds what was there before");
        session.fill(STREAM, buffer.all(), Pattern::Bits8(0x5e))?;
        pinned.write(0, &[0x5e; PINNED_BYTES]);
        session.launch(STREAM, &store, &one, &Parameters::new().u64(stray).u32(0x5ec2_e701))?;
        assert_eq!(look()?, [0x5ec2_e701], "a stray store lands in the sink");
        drop((buffer, pinned, seen, image, session));
        kernel.without(&[NAME]);
    }
    Ok(())
}
