//! The entries that the checks launch, in the guard's form: three hidden parameters last, addresses confined.

/// Hidden parameters of a slot, as bytes: high word of the base, mask for loads, mask for stores.
pub(crate) fn hidden(base: u64, slot_bytes: u64, half_bytes: u64) -> Vec<u8> {
    [base, slot_bytes - 1, half_bytes - 1]
        .into_iter()
        .flat_map(|address| u32::try_from(address >> 32).unwrap_or(u32::MAX).to_le_bytes())
        .collect()
}

/// One access's confinement: `address` in place.
fn confine(address: &str, mask: &str) -> String {
    format!(
        "\tmov.b64 {{%lo, %hi}}, {address};\n\tlop3.b32 %hi, %hi, {mask}, %base, 0xEA;\n\tmov.b64 {address}, {{%lo, %hi}};\n"
    )
}

fn entry(name: &str, parameters: &[(&str, &str)], body: &str) -> String {
    let mut text = format!(".visible .entry {name}(\n");
    for (ty, parameter) in parameters {
        text += &format!("\t.param .{ty} {parameter},\n");
    }
    text += "\t.param .u32 __bh_base,\n\t.param .u32 __bh_load,\n\t.param .u32 __bh_store\n)\n{\n";
    text += "\t.reg .pred %p;\n\t.reg .pred %q;\n\t.reg .b32 %r<16>;\n\t.reg .b64 %rd<8>;\n";
    text +=
        "\t.reg .b32 %base;\n\t.reg .b32 %load;\n\t.reg .b32 %store;\n\t.reg .b32 %lo;\n\t.reg .b32 %hi;\n";
    text += "\tld.param.u32 %base, [__bh_base];\n\tld.param.u32 %load, [__bh_load];\n\tld.param.u32 %store, [__bh_store];\n";
    text + body + "\tret;\n}\n"
}

/// The text of the image, for a device of `architecture`.
pub(crate) fn ptx(architecture: u32) -> String {
    let mut text = format!(
        ".version 8.0\n.target sm_{architecture}\n.address_size 64\n.extern .shared .align 16 .b8 dynamic[];\n"
    );

    // out[i] = i + add, for i < n.
    let body = "\tld.param.u64 %rd1, [out];\n\tld.param.u32 %r1, [n];\n\tld.param.u32 %r2, [add];\n\
        \tmov.u32 %r3, %ctaid.x;\n\tmov.u32 %r4, %ntid.x;\n\tmov.u32 %r5, %tid.x;\n\tmad.lo.s32 %r6, %r3, %r4, %r5;\n\
        \tsetp.ge.u32 %p, %r6, %r1;\n\t@%p bra $done;\n\
        \tmul.wide.u32 %rd2, %r6, 4;\n\tadd.s64 %rd3, %rd1, %rd2;\n\tadd.s32 %r7, %r6, %r2;\n"
        .to_owned()
        + &confine("%rd3", "%store")
        + "\tst.global.u32 [%rd3], %r7;\n$done:\n";
    text += &entry("count", &[("u64", "out"), ("u32", "n"), ("u32", "add")], &body);

    // *to = *from.
    let body = "\tld.param.u64 %rd1, [to];\n\tld.param.u64 %rd2, [from];\n".to_owned()
        + &confine("%rd2", "%load")
        + "\tld.global.u32 %r1, [%rd2];\n"
        + &confine("%rd1", "%store")
        + "\tst.global.u32 [%rd1], %r1;\n";
    text += &entry("move_word", &[("u64", "to"), ("u64", "from")], &body);

    // Says at `here` that it runs, waits (at most `most` looks) until `there` is not 0, and writes to `here` + 4 what it saw.
    let body = "\tld.param.u64 %rd1, [here];\n\tld.param.u64 %rd2, [there];\n\tld.param.u32 %r1, [most];\n"
        .to_owned()
        + &confine("%rd1", "%store")
        + &confine("%rd2", "%load")
        + "\tmov.u32 %r2, 1;\n\tst.volatile.global.u32 [%rd1], %r2;\n\tmov.u32 %r3, 0;\n\
        $look:\n\tld.volatile.global.u32 %r4, [%rd2];\n\tsetp.ne.u32 %p, %r4, 0;\n\t@%p bra $seen;\n\
        \tadd.s32 %r3, %r3, 1;\n\tsetp.lt.u32 %q, %r3, %r1;\n\t@%q bra $look;\n\
        $seen:\n\tst.volatile.global.u32 [%rd1+4], %r4;\n";
    text += &entry("meet", &[("u64", "here"), ("u64", "there"), ("u32", "most")], &body);

    // Writes the last word of `bytes` of dynamic shared memory, reads it in another thread, stores it.
    let body = "\tld.param.u64 %rd1, [out];\n\tld.param.u32 %r1, [bytes];\n\tmov.u32 %r2, dynamic;\n\
        \tadd.s32 %r3, %r2, %r1;\n\tmov.u32 %r4, %tid.x;\n\tmov.u32 %r5, 12345;\n\
        \tsetp.ne.u32 %p, %r4, 0;\n\t@!%p st.shared.u32 [%r3+-4], %r5;\n\tbar.sync 0;\n\
        \tsetp.ne.u32 %q, %r4, 32;\n\t@%q bra $out;\n\tld.shared.u32 %r6, [%r3+-4];\n"
        .to_owned()
        + &confine("%rd1", "%store")
        + "\tst.global.u32 [%rd1], %r6;\n$out:\n";
    text += &entry("last_word", &[("u64", "out"), ("u32", "bytes")], &body);

    // Runs for `ns`, then stores 1.
    let body = "\tld.param.u64 %rd1, [out];\n\tld.param.u64 %rd2, [ns];\n\tmov.u64 %rd3, %globaltimer;\n\
        $again:\n\tmov.u64 %rd4, %globaltimer;\n\tsub.s64 %rd5, %rd4, %rd3;\n\
        \tsetp.lt.u64 %p, %rd5, %rd2;\n\t@%p bra $again;\n\tmov.u32 %r1, 1;\n"
        .to_owned()
        + &confine("%rd1", "%store")
        + "\tst.global.u32 [%rd1], %r1;\n";
    text += &entry("spin", &[("u64", "out"), ("u64", "ns")], &body);

    // A store that nothing confines. The guard would never print this.
    let body = "\tld.param.u64 %rd1, [out];\n\tmov.u32 %r1, 1;\n\tst.global.u32 [%rd1], %r1;\n";
    text + &entry("wild_store", &[("u64", "out")], body)
}

/// A text of which the third line is wrong.
pub(crate) fn broken(architecture: u32) -> String {
    format!(".version 8.0\n.target sm_{architecture}\n.nonsense 64\n")
}
