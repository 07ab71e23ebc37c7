//! What a client does besides sending messages: it fetches the memory for an image that it offered, and writes to it.

use std::{
    fs::File,
    io::{self, Write as _},
    path::Path,
};

use rustix::fs::SealFlags;

use crate::hostile::{descriptor_socket, exchange};

/// What is offered: code that loads.
pub(super) const IMAGE: &[u8] = include_bytes!("../kernels.ptx");

/// How honest what is written is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// The image, sealed.
    Image,
    /// Bytes that are no image, sealed.
    Garbage,
    /// The image in a memfd that can still change.
    Unsealed,
    /// Nothing: a descriptor is passed along with the token.
    Socket,
}

/// Presents a token, and does with the memory that it is good for what is to be done.
pub(super) fn present(socket: &Path, token: [u64; 2], what: Sent) -> io::Result<()> {
    let path = socket.with_file_name("descriptors.sock");
    // A server with something wrong may answer tokens and hand nothing over.
    if !path.exists() {
        return Ok(());
    }
    let kernel = descriptor_socket(&path);
    let token = [token[0].to_le_bytes(), token[1].to_le_bytes()].concat();
    if what == Sent::Socket {
        let passed = descriptor_socket(&path);
        drop(exchange(&kernel, &token, Some(&passed)));
        return Ok(());
    }
    let Some(memory) = exchange(&kernel, &token, None).and_then(|(_, mut given)| given.pop()) else {
        return Ok(());
    };
    let mut memory = File::from(memory);
    match what {
        Sent::Garbage => memory.write_all(b"no image at all")?,
        Sent::Image | Sent::Unsealed | Sent::Socket => memory.write_all(IMAGE)?,
    }
    if what != Sent::Unsealed {
        rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW)?;
    }
    Ok(())
}
