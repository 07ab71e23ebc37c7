//! What loading code costs: PTX that nobody has loaded, PTX whose machine code is kept, PTX that another session has loaded.

use std::{
    fmt::Write as _,
    path::Path,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use bulkhead_client::{Image, Session};

use super::{
    effort::Amounts,
    findings::{Findings, Trouble, milliseconds},
    observer::Observer,
    tenant,
};
use crate::samples::Samples;

/// Entries of what is loaded.
const ENTRIES: u32 = 12;

/// Where code came from, as the kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Compiled,
    Kept,
    Loaded,
}

pub(super) fn measure(socket: &Path, amounts: Amounts, findings: &mut Findings) -> Result<(), Trouble> {
    let observer = Observer::open(socket)?;
    let (first, second) = (tenant::open(socket, "bench loads")?, tenant::open(socket, "bench loads too")?);
    let count = amounts.sessions;
    let [mut cold, mut kept, mut shared] = [0; 3].map(|_| Samples::with_capacity(count));
    for round in 0..=count {
        let text = unseen(round);
        let (cold_ms, origin, image) = load(&observer, &first, &text)?;
        expect(origin, &[Origin::Compiled])?;
        let (shared_ms, origin, other) = load(&observer, &second, &text)?;
        expect(origin, &[Origin::Loaded])?;
        drop((image, other));
        let (kept_ms, origin) = loop {
            let (kept_ms, origin, _) = load(&observer, &first, &text)?;
            // Until the executor has let go of it.
            if origin != Origin::Loaded {
                break (kept_ms, origin);
            }
        };
        // Where there is no machine code it is made anew.
        expect(origin, &[Origin::Kept, Origin::Compiled])?;
        if round > 0 {
            cold.push(cold_ms);
            kept.push(kept_ms);
            shared.push(shared_ms);
        }
    }
    findings.add("load_cold_ms", cold);
    findings.add("load_kept_ms", kept);
    findings.add("load_shared_ms", shared);
    Ok(())
}

fn load(observer: &Observer, session: &Session, text: &str) -> Result<(f64, Origin, Image), Trouble> {
    let before = observer.status()?.images;
    let begun = Instant::now();
    let image = session.load_image(text.as_bytes())?;
    let taken = milliseconds(begun);
    let after = observer.status()?.images;
    let origins = [Origin::Compiled, Origin::Kept, Origin::Loaded];
    let mut counted = origins.into_iter().zip(before.into_iter().zip(after));
    let origin = counted.find(|(_, (before, after))| before != after).map(|(origin, _)| origin);
    let origin = origin.ok_or_else(|| Trouble::Said("an image was loaded and not counted".to_owned()))?;
    Ok((taken, origin, image))
}

fn expect(origin: Origin, wanted: &[Origin]) -> Result<(), Trouble> {
    if wanted.contains(&origin) {
        return Ok(());
    }
    Err(Trouble::Said(format!("code that should have been {wanted:?} was {origin:?}")))
}

/// PTX that nobody has loaded before.
fn unseen(round: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let mut text = ".version 8.0\n.target sm_75\n.address_size 64\n".to_owned();
    for entry in 0..ENTRIES {
        let body = "\t.reg .pred %p;\n\t.reg .b32 %r<9>;\n\t.reg .b64 %rd<5>;\n\tld.param.u64 %rd1, [at];\n\
            \tld.param.u32 %r1, [n];\n\tmov.u32 %r2, %tid.x;\n$again:\n\tmul.wide.u32 %rd2, %r2, 4;\n\
            \tadd.s64 %rd3, %rd1, %rd2;\n\tld.global.u32 %r3, [%rd3];\n\tdiv.u32 %r4, %r3, %r1;\n";
        let addend = u64::from(now).wrapping_mul(31).wrapping_add(u64::from(entry)) & 0xff_ffff;
        let end = "\tst.global.u32 [%rd3], %r5;\n\tadd.u32 %r2, %r2, 32;\n\tsetp.lt.u32 %p, %r2, %r1;\n\
            \t@%p bra $again;\n\tret;\n}\n";
        write!(
            text,
            ".visible .entry e{entry}_{round}_{now}(.param .u64 at, .param .u32 n)\n{{\n{body}\tadd.u32 %r5, %r4, {addend};\n{end}"
        )
        .expect("memory can be written");
    }
    text
}
