//! The two engines compute the same: each operation on edge values, with and without a predicate.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test stops where something is wrong; words are cut on purpose"
)]

mod common;

use std::fmt::Write as _;

use bulkhead_gpu::{EntryId, Error, Gpu, Launch};
use bulkhead_softgpu::Engine;
use common::{Machine, Parameters};

/// Values on which operations tend to differ.
fn edges() -> Vec<u64> {
    let mut edges: Vec<u64> = vec![
        0, 1, 2, 3, 5, 7, 8, 15, 16, 17, 30, 31, 32, 33, 48, 63, 64, 65, 0x7f, 0x80, 0xff, 0x100, 0x1234,
    ];
    edges.extend([0x7fff, 0x8000, 0xfffe, 0xffff, 0x1_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]);
    edges.extend([1 << 32, i64::MAX.cast_unsigned(), 1 << 63, u64::MAX, u64::MAX - 1, 0x0123_4567_89ab_cdef]);
    // Halves, twice in a word.
    edges.extend([0x3c00_3c00, 0x7c00_fc00, 0x0001_8001, 0x7e00_7c01, 0x3f80_bf80, 0x7f80_ff80, 0x7bff_0400]);
    let singles =
        [1.0, -1.0, 0.5, -0.0, f32::MAX, f32::MIN_POSITIVE, 1e-42, f32::INFINITY, 2.5, -3.5, 1e10, 0.1];
    edges.extend(singles.map(|single| u64::from(single.to_bits())));
    edges.extend([0x7fc0_0000, 0xff80_0001, 0x7f80_0001, 0xff80_0000, 0x4f00_0000, 0xcf00_0001]);
    let doubles =
        [1.0, -2.5, 1e300, f64::MIN_POSITIVE, 5e-324, f64::INFINITY, 4_294_967_296.5, -0.0, 0.1, 3e9];
    edges.extend(doubles.map(f64::to_bits));
    edges.extend([0x7ff8_0000_0000_0000, 0xfff0_0000_0000_0001, 0x7ff4_dead_beef_0001]);
    edges
}

/// An operation: its name with modifiers, and the kinds of its operands, the result first. `h`, `r` and `d`
/// are 16, 32 and 64 bits, `f` and `g` numbers of 32 and 64 bits, `p` is a predicate; anything else is itself.
type Form = (String, Vec<&'static str>);

fn kind_of(ty: &str) -> &'static str {
    match ty {
        "f32" => "f",
        "f64" => "g",
        _ if ty.ends_with("64") => "d",
        "f16" | "bf16" => "h",
        "f16x2" | "bf16x2" => "r",
        _ if ty.ends_with("16") => "h",
        _ => "r",
    }
}

/// Twice as wide.
fn wide_of(ty: &str) -> &'static str {
    if ty.ends_with("16") { "r" } else { "d" }
}

fn integer_forms(forms: &mut Vec<Form>) {
    for ty in ["u16", "s16", "u32", "s32", "u64", "s64"] {
        let kind = kind_of(ty);
        for op in ["add", "sub", "mul.lo", "mul.hi", "min", "max", "div", "rem"] {
            forms.push((format!("{op}.{ty}"), vec![kind; 3]));
        }
        for op in ["mad.lo", "mad.hi", "sad"] {
            forms.push((format!("{op}.{ty}"), vec![kind; 4]));
        }
        forms.push((format!("shr.{ty}"), vec![kind, kind, "r"]));
        for relation in ["eq", "ne", "lt", "le", "gt", "ge"] {
            forms.push((format!("setp.{relation}.{ty}"), vec!["p", kind, kind]));
        }
    }
    for ty in ["s16", "s32", "s64"] {
        for op in ["abs", "neg"] {
            forms.push((format!("{op}.{ty}"), vec![kind_of(ty); 2]));
        }
    }
    for ty in ["u16", "s16", "u32", "s32"] {
        let (kind, wide) = (kind_of(ty), wide_of(ty));
        forms.push((format!("mul.wide.{ty}"), vec![wide, kind, kind]));
        forms.push((format!("mad.wide.{ty}"), vec![wide, kind, kind, wide]));
    }
    for ty in ["b16", "b32", "b64"] {
        let kind = kind_of(ty);
        for op in ["and", "or", "xor"] {
            forms.push((format!("{op}.{ty}"), vec![kind; 3]));
        }
        for op in ["not", "cnot"] {
            forms.push((format!("{op}.{ty}"), vec![kind; 2]));
        }
        for amount in ["r", "1", "15", "31", "32", "63", "200"] {
            forms.push((format!("shl.{ty}"), vec![kind, kind, amount]));
            forms.push((format!("shr.{ty}"), vec![kind, kind, amount]));
        }
        forms.push((format!("selp.{ty}"), vec![kind, kind, kind, "p"]));
        forms.push((format!("slct.{ty}.s32"), vec![kind, kind, kind, "r"]));
        forms.push((format!("slct.{ty}.f32"), vec![kind, kind, kind, "f"]));
    }
    for ty in ["b32", "b64"] {
        let kind = kind_of(ty);
        for op in ["popc", "clz"] {
            forms.push((format!("{op}.{ty}"), vec!["r", kind]));
        }
        forms.push((format!("brev.{ty}"), vec![kind; 2]));
        forms.push((format!("bfi.{ty}"), vec![kind, kind, kind, "r", "r"]));
    }
    for ty in ["u32", "s32", "u64", "s64"] {
        let kind = kind_of(ty);
        forms.push((format!("bfe.{ty}"), vec![kind, kind, "r", "r"]));
        forms.push((format!("bfind.{ty}"), vec!["r", kind]));
        forms.push((format!("bfind.shiftamt.{ty}"), vec!["r", kind]));
    }
    for ty in ["u32", "s32"] {
        for op in ["mul24.lo", "mul24.hi"] {
            forms.push((format!("{op}.{ty}"), vec!["r"; 3]));
        }
        forms.push((format!("mad24.lo.{ty}"), vec!["r"; 4]));
        forms.push((format!("dp4a.{ty}.{ty}"), vec!["r"; 4]));
    }
    for mode in ["l.clamp", "l.wrap", "r.clamp", "r.wrap"] {
        forms.push((format!("shf.{mode}.b32"), vec!["r"; 4]));
    }
    for table in ["0", "1", "0xea", "0x96", "0xe8", "0xca", "0x7f", "255"] {
        forms.push(("lop3.b32".to_owned(), vec!["r", "r", "r", "r", table]));
    }
    for mode in ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"] {
        forms.push((format!("prmt.b32{mode}"), vec!["r"; 4]));
    }
    forms.push(("add.sat.s32".to_owned(), vec!["r"; 3]));
    forms.push(("sub.sat.s32".to_owned(), vec!["r"; 3]));
    forms.push(("set.lt.u32.s32".to_owned(), vec!["r"; 3]));
    forms.push(("set.ge.f32.f32".to_owned(), vec!["f"; 3]));
    forms.push(("fns.b32".to_owned(), vec!["r"; 4]));
    forms.push(("isspacep.shared".to_owned(), vec!["p", "d"]));
}

fn float_forms(forms: &mut Vec<Form>) {
    for rounding in ["rn", "rz", "rm", "rp"] {
        for after in ["", ".ftz", ".sat", ".ftz.sat"] {
            for op in ["add", "sub", "mul"] {
                forms.push((format!("{op}.{rounding}{after}.f32"), vec!["f"; 3]));
            }
            forms.push((format!("fma.{rounding}{after}.f32"), vec!["f"; 4]));
        }
        for after in ["", ".ftz"] {
            forms.push((format!("div.{rounding}{after}.f32"), vec!["f"; 3]));
            forms.push((format!("rcp.{rounding}{after}.f32"), vec!["f"; 2]));
            forms.push((format!("sqrt.{rounding}{after}.f32"), vec!["f"; 2]));
        }
        for op in ["add", "sub", "mul", "div"] {
            forms.push((format!("{op}.{rounding}.f64"), vec!["g"; 3]));
        }
        for op in ["rcp", "sqrt"] {
            forms.push((format!("{op}.{rounding}.f64"), vec!["g"; 2]));
        }
        forms.push((format!("fma.{rounding}.f64"), vec!["g"; 4]));
    }
    for op in ["rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2"] {
        forms.push((format!("{op}.approx.f32"), vec!["f"; 2]));
        forms.push((format!("{op}.approx.ftz.f32"), vec!["f"; 2]));
    }
    forms.push(("cvt.sat.f32.f32".to_owned(), vec!["f"; 2]));
    for op in ["abs", "neg"] {
        for ty in ["f32", "ftz.f32", "f64"] {
            forms.push((format!("{op}.{ty}"), vec![if ty == "f64" { "g" } else { "f" }; 2]));
        }
    }
    for op in ["min", "max"] {
        for ty in ["f32", "ftz.f32", "NaN.f32", "ftz.NaN.f32", "f64"] {
            forms.push((format!("{op}.{ty}"), vec![if ty == "f64" { "g" } else { "f" }; 3]));
        }
    }
    let relations =
        ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];
    for relation in relations {
        forms.push((format!("setp.{relation}.f32"), vec!["p", "f", "f"]));
        forms.push((format!("setp.{relation}.ftz.f32"), vec!["p", "f", "f"]));
        forms.push((format!("setp.{relation}.f64"), vec!["p", "g", "g"]));
        forms.push((format!("setp.{relation}.f16"), vec!["p", "h", "h"]));
    }
    for property in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] {
        forms.push((format!("testp.{property}.f32"), vec!["p", "f"]));
        forms.push((format!("testp.{property}.f64"), vec!["p", "g"]));
    }
    for (ty, kind) in [("f32", "f"), ("f64", "g")] {
        forms.push((format!("copysign.{ty}"), vec![kind; 3]));
    }
    for ty in ["f16", "bf16", "f16x2", "bf16x2"] {
        let kind = kind_of(ty);
        for op in ["add.rn", "sub.rn", "mul.rn", "min", "max"] {
            forms.push((format!("{op}.{ty}"), vec![kind; 3]));
        }
        forms.push((format!("fma.rn.{ty}"), vec![kind; 4]));
        for op in ["abs", "neg"] {
            forms.push((format!("{op}.{ty}"), vec![kind; 2]));
        }
    }
}

fn conversion_forms(forms: &mut Vec<Form>) {
    let integers = ["u16", "s16", "u32", "s32", "u64", "s64"];
    for from in integers {
        for to in integers {
            forms.push((format!("cvt.{to}.{from}"), vec![kind_of(to), kind_of(from)]));
            forms.push((format!("cvt.sat.{to}.{from}"), vec![kind_of(to), kind_of(from)]));
        }
        for narrow in ["u8", "s8"] {
            forms.push((format!("cvt.{narrow}.{from}"), vec!["h", kind_of(from)]));
        }
        for float in ["f16", "f32", "f64"] {
            for rounding in ["rn", "rz", "rm", "rp"] {
                forms.push((format!("cvt.{rounding}.{float}.{from}"), vec![kind_of(float), kind_of(from)]));
                forms.push((format!("cvt.{rounding}i.{from}.{float}"), vec![kind_of(from), kind_of(float)]));
            }
        }
    }
    forms.push(("cvt.ftz.f64.f32".to_owned(), vec!["g", "f"]));
    forms.push(("cvt.f64.f32".to_owned(), vec!["g", "f"]));
    forms.push(("cvt.f32.f16".to_owned(), vec!["f", "h"]));
    for rounding in ["rn", "rz", "rm", "rp"] {
        forms.push((format!("cvt.{rounding}.f32.f64"), vec!["f", "g"]));
        forms.push((format!("cvt.{rounding}i.f32.f32"), vec!["f", "f"]));
    }
    for rounding in ["rn", "rz"] {
        forms.push((format!("cvt.{rounding}.f16.f32"), vec!["h", "f"]));
        forms.push((format!("cvt.{rounding}.f16x2.f32"), vec!["r", "f", "f"]));
    }
    for (to, from) in [("h", "h"), ("r", "r"), ("f", "f"), ("d", "d"), ("g", "g"), ("r", "f"), ("f", "r")] {
        let bits = if to == "h" {
            16
        } else if "dg".contains(to) {
            64
        } else {
            32
        };
        forms.push((format!("mov.b{bits}"), vec![to, from]));
    }
}

/// Video instructions, on whole words and on parts of them.
fn video_forms(forms: &mut Vec<Form>) {
    let types = ["u32.u32.u32", "s32.s32.s32", "u32.s32.u32", "s32.u32.s32"];
    for types in types {
        for op in ["vadd", "vsub", "vabsdiff", "vmin", "vmax"] {
            forms.push((format!("{op}.{types}"), vec!["r", "r", "%br.h1"]));
            forms.push((format!("{op}.{types}.sat"), vec!["%dr.b2", "%ar.h0", "r", "r"]));
            forms.push((format!("{op}.{types}.max"), vec!["r", "%ar.b3", "%br.b0", "r"]));
        }
        for op in ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"] {
            forms.push((format!("{op}2.{types}"), vec!["%dr.h1", "r", "%br.h13", "r"]));
            forms.push((format!("{op}4.{types}.add"), vec!["r", "%ar.b0370", "r", "r"]));
        }
        forms.push((format!("vmad.{types}.sat.shr7"), vec!["r", "%ar.h1", "r", "r"]));
        forms.push((format!("vmad.{types}.po"), vec!["r", "r", "r", "r"]));
        forms.push((format!("vmad.{types}.shr15"), vec!["r", "-%ar", "%br.b1", "r"]));
    }
    for ty in ["u32", "s32"] {
        for op in ["vshl", "vshr"] {
            forms.push((format!("{op}.{ty}.{ty}.u32.sat.clamp"), vec!["%dr.h0", "r", "r", "r"]));
            forms.push((format!("{op}.{ty}.{ty}.u32.wrap.add"), vec!["r", "%ar.h1", "r", "r"]));
        }
        for relation in ["eq", "ne", "lt", "le", "gt", "ge"] {
            forms.push((format!("vset.{ty}.s32.{relation}"), vec!["r", "r", "%br.b0"]));
            forms.push((format!("vset4.{ty}.{ty}.{relation}"), vec!["%dr.b310", "r", "r", "r"]));
            forms.push((format!("vset2.{ty}.{ty}.{relation}.add"), vec!["r", "r", "r", "r"]));
        }
    }
}

fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    video_forms(&mut forms);
    integer_forms(&mut forms);
    float_forms(&mut forms);
    conversion_forms(&mut forms);
    forms
}

/// The operands' registers, and the instruction, perhaps under a predicate.
fn spelled((op, kinds): &Form, predicate: &str) -> String {
    let names = ["d", "a", "b", "c", "e"];
    let operands: Vec<String> = kinds
        .iter()
        .zip(names)
        .map(|(kind, name)| match *kind {
            "h" | "r" | "d" | "f" | "g" => format!("%{name}{kind}"),
            "p" if name == "d" => "%dp|%dq".to_owned(),
            "p" => "%ip".to_owned(),
            itself => itself.to_owned(),
        })
        .collect();
    // Not every instruction has two results.
    let both = op.starts_with("setp");
    let operands = operands.join(", ");
    let operands = if both { operands } else { operands.replace("%dp|%dq", "%dp") };
    format!("{predicate}{op} {operands};")
}

/// An entry that does one operation on three words of each thread's own.
fn entry(index: usize, form: &Form) -> String {
    let mut text = format!(".visible .entry e{index}(.param .u64 p0, .param .u64 p1)\n{{\n");
    text.push_str(
        ".reg .pred %dp, %dq, %ip, %odd; .reg .b32 %id, %x, %y;
        .reg .b16 %dh, %ah, %bh, %ch, %eh; .reg .b32 %dr, %ar, %br, %cr, %er;
        .reg .b64 %dd, %ad, %bd, %cd, %ed, %in, %out, %at, %sum;
        .reg .f32 %df, %af, %bf, %cf, %ef; .reg .f64 %dg, %ag, %bg, %cg, %eg;
        ld.param.u64 %in, [p0]; ld.param.u64 %out, [p1];
        mov.u32 %x, %ctaid.x; mov.u32 %y, %ntid.x; mov.u32 %id, %tid.x; mad.lo.u32 %id, %x, %y, %id;
        mul.wide.u32 %at, %id, 32; add.s64 %in, %in, %at; mul.wide.u32 %at, %id, 16; add.s64 %out, %out, %at;
        ld.global.u64 %ad, [%in]; ld.global.u64 %bd, [%in+8]; ld.global.u64 %cd, [%in+16]; ld.global.u64 %ed, [%in+24];
        and.b32 %x, %id, 1; setp.ne.u32 %odd, %x, 0; setp.lt.u64 %ip, %cd, %ed;
        mov.b64 %dd, %ed; mov.pred %dp, %odd; mov.pred %dq, %ip;\n",
    );
    for name in ["a", "b", "c", "d", "e"] {
        writeln!(
            text,
            "cvt.u16.u64 %{name}h, %{name}d; cvt.u32.u64 %{name}r, %{name}d;
             mov.b32 %{name}f, %{name}r; mov.b64 %{name}g, %{name}d;"
        )
        .unwrap();
    }
    let result = form.1[0];
    let kept = match result {
        "h" => "cvt.u64.u16 %sum, %dh;",
        part if part == "r" || part.starts_with("%dr") => "cvt.u64.u32 %sum, %dr;",
        "f" => "mov.b32 %dr, %df; cvt.u64.u32 %sum, %dr;",
        "g" => "mov.b64 %sum, %dg;",
        "p" => "selp.u64 %sum, 1, 0, %dp; selp.u64 %dd, 2, 0, %dq; add.u64 %sum, %sum, %dd;",
        _ => "mov.b64 %sum, %dd;",
    };
    let (plain, guarded) = (spelled(form, ""), spelled(form, "@!%odd "));
    writeln!(text, "{plain}\n{kept}\nst.global.u64 [%out], %sum;\nmov.b64 %dd, %ed;").unwrap();
    writeln!(text, "cvt.u16.u64 %dh, %ed; cvt.u32.u64 %dr, %ed; mov.b32 %df, %dr; mov.b64 %dg, %ed;")
        .unwrap();
    writeln!(text, "{guarded}\n{kept}\nst.global.u64 [%out+8], %sum;\nret;\n}}").unwrap();
    text
}

fn words(count: usize) -> Vec<u64> {
    let edges = edges();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut words = Vec::with_capacity(count * 4);
    for index in 0..count {
        // All pairs of edges in the first two operands.
        words.push(edges[index % edges.len()]);
        words.push(edges[index / edges.len() % edges.len()]);
        words.push(if index % 3 == 0 { random() } else { edges[(random() % edges.len() as u64) as usize] });
        words.push(random());
    }
    words
}

#[test]
fn every_operation_computes_the_same_in_both_engines() {
    let forms = forms();
    assert!(forms.len() > 400, "{}", forms.len());
    let count = (edges().len() * edges().len()).next_multiple_of(128);
    let words = words(count);
    let mut engines = [Machine::of(Engine::Interpreter), Machine::of(Engine::Compiled)];
    let buffers = engines.each_mut().map(|machine| (machine.upload_u64(&words), machine.buffer(count * 16)));
    let mut differences = Vec::new();
    for (index, form) in forms.iter().enumerate() {
        let ptx = format!(".version 8.6\n.target sm_90\n.address_size 64\n{}", entry(index, form));
        let mut found = Vec::new();
        for (machine, (from, to)) in engines.iter_mut().zip(buffers) {
            let image = machine.gpu.load(&ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
            let parameters = Parameters::default().u64(from).u64(to).0;
            let grid = u32::try_from(count / 128).unwrap();
            machine.run(image.entries[0].id, grid, 128, &parameters).unwrap();
            machine.is_what_it_was_told(image.entries[0].id);
            found.push(machine.download_u64(to, count * 2));
            machine.gpu.unload(image.id).unwrap();
        }
        let double = form.1[0] == "g";
        let differs = |place: &usize| {
            let (one, other) = (found[0][*place], found[1][*place]);
            one != other && !(double && common::both_nan(one, other))
        };
        if let Some(place) = (0..count * 2).find(differs) {
            differences.push(format!(
                "{}: {:x?} give {:#x}, compiled {:#x}",
                spelled(form, if place % 2 == 1 { "@!%odd " } else { "" }),
                &words[place / 2 * 4..place / 2 * 4 + 4],
                found[0][place],
                found[1][place]
            ));
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

/// What a launch ends with.
fn ends(engine: Engine, body: &str) -> Result<(), Error> {
    let mut machine = Machine::of(engine);
    let entry: EntryId = machine
        .entry(&common::kernel(".reg .b64 %y, %z; .reg .b32 %i; .reg .pred %p; .shared .b32 board[8];", body))
        .id;
    let out = machine.buffer(1 << 12);
    let parameters = out.to_le_bytes();
    let launch = Launch { grid: [1, 1, 1], block: [96, 1, 1], shared_bytes: 0, parameters: &parameters };
    machine.gpu.launch(machine.stream, entry, &launch)?;
    machine.gpu.synchronize(machine.stream)
}

#[test]
fn what_goes_wrong_is_told_alike() {
    for body in [
        "ld.global.u32 %out, [%at+2];",
        "mov.u64 %y, 64; ld.global.u32 %out, [%y];",
        "mov.u64 %y, 64; st.global.u64 [%y+8], %y;",
        "mov.u64 %y, 64; @%p atom.global.add.u32 %out, [%y], 1; setp.gt.u32 %p, %lane, 70; @%p atom.global.add.u32 %out, [%y], 1;",
        "mov.u64 %y, 4096; setp.eq.u32 %p, %lane, 37;\n@%p st.global.u32 [%y], 7;",
        "mov.u32 %i, 8192; st.shared.u32 [%i], %out;",
        "mov.u32 %i, board; ld.shared.u32 %out, [%i+29];",
        "mov.u64 %y, board; cvta.shared.u64 %y, %y; ld.u64 %z, [%y+32];",
        "ld.param.u32 %out, [test_param_0+8];",
        "mov.u32 %i, 0; $loop: add.u32 %i, %i, 1; setp.eq.u32 %p, %i, 9000; @%p trap; bra $loop;",
        "setp.eq.u32 %p, %lane, 3; @%p exit; bar.sync 17;",
        "setp.lt.u32 %p, %lane, 32; @%p bra $one; bar.sync 0, 96; bra $end; $one: bar.sync 1, 96; $end:",
    ] {
        let (one, other) = (ends(Engine::Interpreter, body), ends(Engine::Compiled, body));
        assert!(matches!(one, Err(Error::Lost { .. })), "{body}: {one:?}");
        assert_eq!(one, other, "{body}");
    }
}

/// Each of so many registers is the one before and one more.
fn chain(registers: usize) -> String {
    let mut ptx = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry test(.param .u64 to)\n{{\n\
         .reg .b64 %at;\n.reg .b32 %r<{registers}>;\nld.param.u64 %at, [to];\nmov.u32 %r0, %tid.x;\n"
    );
    for register in 1..registers {
        writeln!(ptx, "add.u32 %r{register}, %r{}, 1;", register - 1).unwrap();
    }
    writeln!(ptx, "st.global.u32 [%at], %r{};\nret;\n}}", registers - 1).unwrap();
    ptx
}

#[test]
fn what_a_debug_build_inlines_may_have_many_registers() {
    // 35,000 were seen in what `nvcc -G` makes of cooperative groups.
    const REGISTERS: usize = 100_000;
    let ptx = chain(REGISTERS);
    for engine in [Engine::Interpreter, Engine::Compiled] {
        let machine = &mut Machine::of(engine);
        let at = machine.upload_u32(&[0]);
        let entry = machine.entry(&ptx);
        machine.run(entry.id, 1, 1, &at.to_le_bytes()).unwrap();
        assert_eq!(machine.download_u32(at, 1), [REGISTERS as u32 - 1], "{engine:?}");
    }
    // What compiling takes grows with registers and basic blocks together: beyond some it is left.
    for (registers, is_compiled) in [(30_000, true), (40_000, false)] {
        let machine = &mut Machine::of(Engine::Compiled);
        let at = machine.upload_u32(&[0]);
        let entry = machine.entry(&chain(registers));
        machine.run(entry.id, 1, 1, &at.to_le_bytes()).unwrap();
        assert_eq!(machine.download_u32(at, 1), [registers as u32 - 1]);
        assert_eq!(machine.gpu.is_compiled(entry.id).unwrap(), is_compiled, "{registers}");
    }
    let refused = Machine::new().gpu.load(&chain(1 << 17)).unwrap_err();
    assert!(refused.to_string().contains("too many registers"), "{refused}");
}
