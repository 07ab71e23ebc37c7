//! `serve --guard strict`: no access rests on a proof about its address, programs run, and people can see it.

#![expect(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::process::Command;

use bulkhead_client::{Launch, Parameters, Stream};
use bulkhead_tests::{kernel::Kernel, process};

/// An entry that has a fast version.
const SQUARE: &[u8] = b".version 8.0
.target sm_75
.address_size 64
.visible .entry square(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %tid.x;
    mul.lo.u32 %r2, %r1, %r1;
    mul.wide.u32 %d2, %r1, 4;
    add.s64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r2;
    ret;
}
\0";

fn status(kernel: &Kernel) -> String {
    let mut command: Command = process::bulkhead(&["status", "--json", "--socket"]);
    let told = command.arg(kernel.socket()).output().unwrap();
    String::from_utf8(told.stdout).unwrap()
}

#[test]
fn programs_run_without_fast_versions_and_status_says_so() {
    for (arguments, guard) in [(&["--guard", "strict"][..], "strict"), (&[][..], "full")] {
        let kernel = Kernel::with(arguments);
        let session = kernel.open("squares");
        let image = session.load_image(SQUARE).unwrap();
        let out = session.allocate(256).unwrap();
        let parameters = Parameters::new().buffer(&out);
        let launch = Launch::linear(1, 64);
        session.launch(Stream::DEFAULT, &image.entry("square").unwrap(), &launch, &parameters).unwrap();
        let mut bytes = [0; 256];
        session.read(Stream::DEFAULT, &mut bytes, out.all()).unwrap();
        let squares: Vec<u32> =
            bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        assert!(squares.iter().zip(0..).all(|(square, index)| *square == index * index), "{squares:?}");
        let told = status(&kernel);
        assert!(told.contains(&format!("\"guard\": \"{guard}\"")), "{told}");
    }
}
