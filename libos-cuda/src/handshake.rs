//! The answer by which NVIDIA's runtime recognises its driver.
//!
//! Every cudart asks entry 1 of export table `d4082055` three times, with a version, the time and 16 bytes of
//! room. Two answers are constants, the third is an HMAC (RFC 2104) with MD2 (RFC 1319) over what the process
//! knows of the driver; without it the runtime stops with error 103. The constants and the message's layout are
//! facts from the public sources of ZLUDA (github.com/vosen/ZLUDA, `dark_api`, MIT/Apache-2.0); the code is ours.
//! Feature `handshake`; see docs/CAVEATS.md.

/// What the runtime and the driver both know, in the order of the message.
#[cfg_attr(not(feature = "handshake"), expect(dead_code, reason = "only the answer reads them"))]
pub(crate) struct Facts {
    /// What `cuDriverGetVersion` answers.
    pub(crate) driver_version: u32,
    /// This process.
    pub(crate) process: u32,
    /// The calling thread, as the C library names it, cut to 32 bits.
    pub(crate) thread: u32,
    /// Address of export table `6bd5fb6c`.
    pub(crate) cudart_table: u64,
    /// Address of export table `d4082055`.
    pub(crate) check_table: u64,
    /// Address of that table's entry 1.
    pub(crate) check_function: u64,
    /// UUID, and PCI domain, bus and device, of every device.
    pub(crate) devices: Vec<([u8; 16], [i32; 3])>,
}

/// Key of the HMAC.
#[cfg(feature = "handshake")]
const KEY: [u8; BLOCK] = 0x146A_DDAE_53A9_A752_AA08_4136_0BF5_5A9Fu128.to_be_bytes();

/// Answers one question.
#[cfg(feature = "handshake")]
pub(crate) fn answer(version: u32, unix_seconds: u64, facts: &Facts) -> Option<[u64; 2]> {
    match version % 10 {
        0 => return Some([0x3341_181C_03CB_675C, 0x8ED3_83AA_1F4C_D1E8]),
        1 => return Some([0x1841_181C_03CB_675C, 0x8ED3_83AA_1F4C_D1E8]),
        _ => {}
    }
    let mut message = Vec::new();
    for word in [facts.driver_version, version, facts.process, facts.thread] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    for word in [facts.cudart_table, facts.check_table, facts.check_function, unix_seconds] {
        message.extend_from_slice(&word.to_le_bytes());
    }
    for (uuid, location) in &facts.devices {
        message.extend_from_slice(uuid);
        message.extend(location.iter().flat_map(|number| number.to_le_bytes()));
    }
    let digest = u128::from_le_bytes(hmac(&KEY, &message));
    let [low, high] = [digest, digest >> 64].map(|word| u64::try_from(word & u128::from(u64::MAX)).ok());
    Some([low?, high?])
}

/// Without the feature there is no answer.
#[cfg(not(feature = "handshake"))]
pub(crate) fn answer(_version: u32, _unix_seconds: u64, _facts: &Facts) -> Option<[u64; 2]> {
    None
}

#[cfg(any(feature = "handshake", test))]
const BLOCK: usize = 16;

#[cfg(any(feature = "handshake", test))]
fn hmac(key: &[u8; BLOCK], message: &[u8]) -> [u8; BLOCK] {
    let padded = |pad: u8, content: &[u8]| md2(&[&key.map(|byte| byte ^ pad)[..], content].concat());
    padded(0x5C, &padded(0x36, message))
}

/// RFC 1319.
#[cfg(any(feature = "handshake", test))]
fn md2(message: &[u8]) -> [u8; BLOCK] {
    let padding = BLOCK - message.len() % BLOCK;
    let mut padded = message.to_vec();
    padded.resize(message.len() + padding, u8::try_from(padding).unwrap_or(0));

    let mut checksum = [0u8; BLOCK];
    let mut last = 0;
    for block in padded.chunks_exact(BLOCK) {
        for (sum, byte) in checksum.iter_mut().zip(block) {
            *sum ^= PI[usize::from(byte ^ last)];
            last = *sum;
        }
    }
    padded.extend_from_slice(&checksum);

    let mut state = [0u8; 3 * BLOCK];
    for block in padded.chunks_exact(BLOCK) {
        for (place, byte) in block.iter().enumerate() {
            state[BLOCK + place] = *byte;
            state[2 * BLOCK + place] = state[place] ^ byte;
        }
        let mut carry = 0u8;
        for round in 0..18u8 {
            for byte in &mut state {
                *byte ^= PI[usize::from(carry)];
                carry = *byte;
            }
            carry = carry.wrapping_add(round);
        }
    }
    let mut digest = [0; BLOCK];
    digest.copy_from_slice(&state[..BLOCK]);
    digest
}

/// The permutation of RFC 1319, made from the digits of pi.
#[cfg(any(feature = "handshake", test))]
#[rustfmt::skip]
const PI: [u8; 256] = [
    41, 46, 67, 201, 162, 216, 124, 1, 61, 54, 84, 161, 236, 240, 6, 19, 98, 167, 5, 243, 192, 199, 115, 140,
    152, 147, 43, 217, 188, 76, 130, 202, 30, 155, 87, 60, 253, 212, 224, 22, 103, 66, 111, 24, 138, 23, 229, 18,
    190, 78, 196, 214, 218, 158, 222, 73, 160, 251, 245, 142, 187, 47, 238, 122, 169, 104, 121, 145, 21, 178, 7,
    63, 148, 194, 16, 137, 11, 34, 95, 33, 128, 127, 93, 154, 90, 144, 50, 39, 53, 62, 204, 231, 191, 247, 151, 3,
    255, 25, 48, 179, 72, 165, 181, 209, 215, 94, 146, 42, 172, 86, 170, 198, 79, 184, 56, 210, 150, 164, 125, 182,
    118, 252, 107, 226, 156, 116, 4, 241, 69, 157, 112, 89, 100, 113, 135, 32, 134, 91, 207, 101, 230, 45, 168, 2,
    27, 96, 37, 173, 174, 176, 185, 246, 28, 70, 97, 105, 52, 64, 126, 15, 85, 71, 163, 35, 221, 81, 175, 58, 195,
    92, 249, 206, 186, 197, 234, 38, 44, 83, 13, 110, 133, 40, 132, 9, 211, 223, 205, 244, 65, 129, 77, 82, 106,
    220, 55, 200, 108, 193, 171, 250, 36, 225, 123, 8, 12, 189, 177, 74, 120, 136, 149, 139, 227, 99, 232, 109,
    233, 203, 213, 254, 59, 0, 29, 57, 242, 239, 183, 14, 102, 88, 208, 228, 166, 119, 114, 248, 235, 117, 75, 10,
    49, 68, 80, 180, 143, 237, 31, 26, 219, 153, 141, 51, 159, 17, 131, 20,
];

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: [u8; 16]) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn md2_gives_the_digests_of_its_specification() {
        assert_eq!(hex(md2(b"")), "8350e5a3e24c153df2275c9f80692773");
        assert_eq!(hex(md2(b"abc")), "da853b0d3f88d99b30283a69e6ded6bb");
        assert_eq!(
            hex(md2(b"12345678901234567890123456789012345678901234567890123456789012345678901234567890")),
            "d5976f79d83d3a0dc9806c3c66f3efd8"
        );
    }

    /// Worked out with another implementation, in Python, of MD2 and HMAC.
    #[cfg(feature = "handshake")]
    #[test]
    fn the_third_answer_is_an_hmac_of_the_facts() {
        let facts = Facts {
            driver_version: 12080,
            process: 0x002F_A423,
            thread: 0xF79C_1000,
            cudart_table: 0x7FFF_F695_8240,
            check_table: 0x7FFF_F695_8220,
            check_function: 0x7FFF_F2AA_F4A0,
            devices: vec![(0x9AFE_2B8A_AC25_2D38_EA37_AEC5_6D71_325Fu128.to_be_bytes(), [0, 2, 0])],
        };
        let answer = answer(12082, 0x682B_9CEE, &facts).unwrap();
        let digest: Vec<u8> = answer.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(hex(digest.try_into().unwrap()), "4448a171b026cef76c8c3e39051b02dd");
    }

    #[cfg(feature = "handshake")]
    #[test]
    fn every_fact_changes_the_third_answer_and_none_the_first_two() {
        let facts = || Facts {
            driver_version: 13000,
            process: 1,
            thread: 2,
            cudart_table: 3,
            check_table: 4,
            check_function: 5,
            devices: vec![([7; 16], [0, 1, 2])],
        };
        let first = answer(13000, 9, &facts());
        let third = answer(13002, 9, &facts());
        assert_ne!(first, third);
        let changes: [fn(&mut Facts); 8] = [
            |facts| facts.driver_version += 1,
            |facts| facts.process += 1,
            |facts| facts.thread += 1,
            |facts| facts.cudart_table += 1,
            |facts| facts.check_table += 1,
            |facts| facts.check_function += 1,
            |facts| facts.devices[0].1[2] += 1,
            |facts| facts.devices.clear(),
        ];
        for change in changes {
            let mut changed = facts();
            change(&mut changed);
            assert_eq!(answer(13000, 9, &changed), first);
            assert_ne!(answer(13002, 9, &changed), third);
        }
        assert_ne!(answer(13002, 10, &facts()), third);
    }
}
