//! The tenant that stores through forged addresses.

use bulkhead_client::{Image, Launch, Parameters, Session, Stream};
use serde_json::{Value, json};

use super::{MARK, entry};
use crate::Failure;

/// Stores through every target, then looks where each store went.
pub(super) fn run(session: &Session, image: &Image, targets: &[u64]) -> Result<Value, Failure> {
    let stream = Stream::DEFAULT;
    let (forge, peek) = (entry(image, "forge")?, entry(image, "peek")?);
    let seen = session.allocate(4)?;
    let (slot, slot_bytes) = session.window();
    let mut stores = Vec::new();
    for (index, target) in (0_u32..).zip(targets) {
        let value = MARK.wrapping_add(index);
        let one = Launch::linear(1, 1);
        session.launch(stream, &forge, &one, &Parameters::new().u64(*target).u32(value))?;
        // Where the guard says that the store goes: the low bits stay, the high ones are the slot's, and a word is
        // aligned.
        let landed = slot | (target & (slot_bytes / 2 - 1) & !3);
        let look = |at: u64| -> Result<u32, Failure> {
            session.launch(stream, &peek, &one, &Parameters::new().u64(at).buffer(&seen))?;
            let mut word = [0; 4];
            session.read(stream, &mut word, seen.all())?;
            Ok(u32::from_ne_bytes(word))
        };
        let found = look(landed)?;
        // The sink is one chunk of memory mapped over and over: what is in it shows at every repetition.
        let sink = look(landed + bulkhead_mm::SINK_BYTES)? == value
            && look(slot + landed % bulkhead_mm::SINK_BYTES)? == value;
        stores.push(json!({
            "forged": target, "landed": landed, "value": found, "seen": found == value, "sink": sink,
            "in_own_slot": landed >= slot && landed < slot + slot_bytes,
        }));
    }
    Ok(json!({"slot": slot, "stores": stores, "alive": session.status().is_ok()}))
}
