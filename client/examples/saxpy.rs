//! The smallest whole program: load an image, give it memory, launch it, read the result.
//!
//! ```sh
//! bulkhead serve --backend software &
//! cargo run -p bulkhead-client --example saxpy
//! ```
//!
//! The kernel is looked for at `$BULKHEAD_SOCKET`, else at `$XDG_RUNTIME_DIR/bulkhead/kernel.sock`, where `bulkhead
//! serve` puts it.

use bulkhead_client::{Error, Launch, Options, Parameters, Session, Stream};

fn main() -> Result<(), Error> {
    // A session is this program's own world on the GPU: nobody else sees its memory, and it sees nobody's.
    let session = Session::open(&Options { name: "saxpy example".into(), ..Options::default() })?;
    let device = session.device();
    println!("device: {} ({})", device.name, device.backend);

    // PTX text, or a fat binary as nvcc writes it. Bulkhead rewrites it so that it stays in the session's memory.
    let image = session.load_image(include_bytes!("saxpy.ptx"))?;
    let saxpy = image.entry("saxpy")?;

    let count: u32 = 1 << 16;
    let a = 2.5_f32;
    let xs: Vec<f32> =
        (0..1000_u16).cycle().take(count as usize).map(|number| f32::from(number) * 0.5).collect();
    let ys: Vec<f32> = vec![1.0; xs.len()];
    let x = session.allocate(u64::from(count) * 4)?;
    let y = session.allocate(u64::from(count) * 4)?;

    // Everything submitted to a stream is done in this order. Nothing here waits but `read`.
    let stream = Stream::DEFAULT;
    session.write(stream, x.all(), &bytes(&xs))?;
    session.write(stream, y.all(), &bytes(&ys))?;
    let parameters = Parameters::new().u32(count).f32(a).buffer(&x).buffer(&y);
    session.launch(stream, &saxpy, &Launch::linear(count, 256), &parameters)?;
    let mut result = vec![0; xs.len() * 4];
    session.read(stream, &mut result, y.all())?;

    let right = floats(&result).zip(xs.iter().zip(&ys)).all(|(found, (x, y))| found == a.mul_add(*x, *y));
    assert!(right, "the GPU computed something else than the CPU");
    println!("y = {a} * x + y for {count} floats: as the CPU computes it");
    // Buffers, image and session are given back when they go out of scope.
    Ok(())
}

fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|float| float.to_ne_bytes()).collect()
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes))
}
