//! A generator of PTX: valid instructions of every family that the opcode table lets pass, with random forms,
//! operands and predicates. Every result is stored, so that the assembler keeps what made it.

use std::fmt::Write as _;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % bound as u64) as usize
    }

    fn of<'a>(&mut self, words: &'a str) -> &'a str {
        let words: Vec<&str> = words.split(' ').collect();
        words[self.below(words.len())]
    }
}

/// A register of a type's class.
fn register(random: &mut Random, ty: &str) -> String {
    let class = match ty {
        "pred" => "p",
        "f32" => "f",
        "f64" => "g",
        ty if ty.ends_with("x2") || ty.ends_with("32") => "r",
        ty if ty.ends_with("64") => "d",
        _ => "h",
    };
    format!("%{class}{}", 2 + random.below(6))
}

/// A register or a literal.
fn value(random: &mut Random, ty: &str) -> String {
    if random.below(3) > 0 {
        return register(random, ty);
    }
    let number = random.below(100);
    match ty {
        "f32" => format!("0f{:08X}", 0x3f80_0000 + number),
        "f64" => format!("{number}.5"),
        "u16" | "b16" | "u32" | "b32" | "u64" | "b64" => format!("{number:#x}"),
        "s16" | "s32" | "s64" => format!("-{number}"),
        ty => register(random, ty),
    }
}

const INT: &str = "u16 s16 u32 s32 u64 s64";
const BITS: &str = "b16 b32 b64";
const WORDS: &str = "u32 s32 u64 s64";

/// Opcodes of one shape: modifiers before the type, types, operands after the destination; `t` is of the type,
/// `c` a 32-bit count, `p` a predicate, `l` a literal below 32.
const FAMILIES: &[(&str, &str, &str)] = &[
    ("add sub min max", INT, "tt"),
    ("mul.lo mul.hi div rem", INT, "tt"),
    ("mad.lo mad.hi sad", INT, "ttt"),
    ("add.sat sub.sat", "s32", "tt"),
    ("add.cc addc sub.cc subc addc.cc subc.cc", "u32 s32 u64", "tt"),
    ("mad.lo.cc madc.hi madc.lo.cc", "u32 s32", "ttt"),
    ("mul24.lo mul24.hi", "u32 s32", "tt"),
    ("mad24.lo", "u32 s32", "ttt"),
    ("abs neg", "s16 s32 s64 f32 f64", "t"),
    ("and or xor", "b16 b32 b64 pred", "tt"),
    ("not", "b16 b32 b64 pred", "t"),
    ("cnot", BITS, "t"),
    ("shl", BITS, "tc"),
    ("shr", "b16 b32 b64 u16 s16 u32 s32 u64 s64", "tc"),
    ("shf.l.wrap shf.r.clamp", "b32", "ttc"),
    ("brev", "b32 b64", "t"),
    ("bfe", WORDS, "tcc"),
    ("bfi", "b32 b64", "ttcc"),
    ("prmt prmt.f4e prmt.b4e prmt.rc8 prmt.ecl", "b32", "ttc"),
    ("lop3", "b32", "tttl"),
    ("szext.wrap szext.clamp", "u32 s32", "tc"),
    ("bmsk.clamp", "b32", "tc"),
    ("add.rn add.rz.ftz sub.rm mul.rp mul.ftz.sat add", "f32", "tt"),
    ("add.rn sub.rz mul.rm div.rn add", "f64", "tt"),
    ("div.rn div.approx.ftz div.full", "f32", "tt"),
    ("fma.rn fma.rz.ftz.sat", "f32", "ttt"),
    ("fma.rn fma.rp", "f64", "ttt"),
    (
        "sqrt.rn sqrt.approx.ftz rcp.rn rcp.approx rsqrt.approx sin.approx cos.approx lg2.approx ex2.approx.ftz tanh.approx",
        "f32",
        "t",
    ),
    ("sqrt.rn rcp.rz rsqrt.approx", "f64", "t"),
    ("min.NaN max.ftz copysign", "f32", "tt"),
    ("add mul sub min max", "f16 f16x2 bf16x2", "tt"),
    ("fma.rn", "f16x2 bf16", "ttt"),
    ("dp4a.u32 dp4a.s32", "u32 s32", "ttt"),
    ("selp", "b16 b32 b64 f32 f64 u32", "ttp"),
    ("mov", "b16 b32 b64 u32 s64 f32 f64", "t"),
    ("shfl.sync.up shfl.sync.down shfl.sync.bfly shfl.sync.idx", "b32", "tlla"),
    ("redux.sync.add redux.sync.min redux.sync.max", "u32 s32", "ta"),
];

/// One instruction with what stores its result.
fn instruction(random: &mut Random) -> String {
    let predicate = match random.below(4) {
        0 => format!("@%p{} ", 2 + random.below(6)),
        1 => format!("@!%p{} ", 2 + random.below(6)),
        _ => String::new(),
    };
    match random.below(6) {
        0 => {
            let ty = random.of("u32 s32 u64 s64 f32 f64 b32");
            let compare = if ty == "b32" { "eq ne" } else { "eq ne lt le gt ge" };
            let (compare, join) = (random.of(compare), random.of("and or xor"));
            let (a, b) = (register(random, ty), value(random, ty));
            let second = if random.below(2) == 0 { "" } else { "|%p9" };
            let (modifier, joined) =
                if random.below(2) == 0 { (String::new(), "") } else { (format!(".{join}"), ", !%p3") };
            format!(
                "{predicate}setp.{compare}{modifier}.{ty} %p8{second}, {a}, {b}{joined};\n\
                 selp.b32 %r8, 1, 2, %p8; st.volatile.global.b32 [%d1], %r8;"
            )
        }
        1 => {
            let (to, from) = (random.of("u32 s32 u64 s64 f32 f64"), random.of("u32 s32 u64 s64 f32 f64"));
            let round = match (to.starts_with('f'), from.starts_with('f')) {
                (true, false) => ".rn",
                (false, true) => ".rzi",
                (true, true) if to == "f32" && from == "f64" => ".rz.sat",
                _ => "",
            };
            let (a, d) = (register(random, from), register(random, to));
            format!("{predicate}cvt{round}.{to}.{from} {d}, {a};\n{}", store(to, &d))
        }
        2 => {
            let (space, at) =
                [("global", "%d1"), ("shared", "tile"), ("local", "depot"), ("const", "__nv_table")]
                    [random.below(4)];
            let (ty, offset) = (random.of("b8 u16 s32 b32 u64 f32 f64"), 16 * random.below(4));
            let cache = if space == "global" { random.of(" .ca .cg .cs .nc") } else { "" };
            let wide = random.below(2) == 0 && ty != "f64" && ty != "u64";
            let kind = if ty == "b8" { "u16" } else { ty };
            let list: Vec<String> =
                (2..6).map(|at| format!("{}{at}", &register(random, kind)[..2])).collect();
            let (vector, data) =
                if wide { (".v4", format!("{{{}}}", list.join(", "))) } else { ("", list[0].clone()) };
            let load = format!("{predicate}ld.{space}{cache}{vector}.{ty} {data}, [{at}+{offset}];");
            format!("{}\n{}", load, store(kind, &list[0]))
        }
        3 => {
            let ty = random.of("u32 s32 u64");
            let operation = random.of("add min max exch and");
            let word =
                if matches!(operation, "exch" | "and") { ty.replace(['u', 's'], "b") } else { ty.to_owned() };
            let (d, a) = (register(random, ty), value(random, ty));
            let offset = 8 * random.below(4);
            format!(
                "{predicate}atom.global.{operation}.{word} {d}, [%d1+{offset}], {a};\n{}\n\
                 red.relaxed.gpu.global.add.u32 [%d1], 1;",
                store(ty, &d)
            )
        }
        _ => {
            let (opcodes, types, shape) = FAMILIES[random.below(FAMILIES.len())];
            let (opcode, ty) = (random.of(opcodes), random.of(types));
            let mut text = format!("{predicate}{opcode}.{ty} {}", register(random, ty));
            let d = text.rsplit(' ').next().unwrap_or_default().to_owned();
            for (index, kind) in shape.chars().enumerate() {
                let operand = match kind {
                    // Some opcodes take no literal first.
                    't' if index == 0 || ty == "pred" => register(random, ty),
                    't' => value(random, ty),
                    'c' => value(random, "u32"),
                    'p' => register(random, "pred"),
                    'l' => random.below(32).to_string(),
                    _ => "0xffffffff".to_owned(),
                };
                write!(text, ", {operand}").unwrap();
            }
            format!("{text};\n{}", store(ty, &d))
        }
    }
}

fn store(ty: &str, register: &str) -> String {
    match ty {
        "pred" => format!("selp.b32 %r8, 1, 2, {register}; st.volatile.global.b32 [%d1], %r8;"),
        ty if ty.ends_with("16") => format!("st.volatile.global.b16 [%d1], {register};"),
        ty if ty.ends_with("64") => format!("st.volatile.global.{}64 [%d1], {register};", float(ty)),
        ty => format!("st.volatile.global.{}32 [%d1], {register};", float(ty)),
    }
}

fn float(ty: &str) -> &'static str {
    if matches!(ty, "f32" | "f64") { "f" } else { "b" }
}

/// A module of several hundred instructions.
pub(crate) fn module(seed: u64) -> String {
    let mut random = Random(seed);
    let mut text = "\
.version 8.6
.target sm_90
.address_size 64
.const .align 16 .b8 __nv_table[128] = {1, 2, 3};
.visible .entry generated (.param .u64 pointer)
{
.reg .pred %p<10>; .reg .b16 %h<9>; .reg .b32 %r<10>; .reg .b64 %d<10>; .reg .f32 %f<9>; .reg .f64 %g<9>;
.shared .align 16 .b8 tile[128]; .local .align 16 .b8 depot[128];
ld.param.u64 %d1, [pointer]; mov.u32 %r9, %tid.x;
"
    .to_owned();
    for index in 2..8 {
        writeln!(
            text,
            "ld.global.b16 %h{index}, [%d1+{0}]; ld.global.b32 %r{index}, [%d1+{0}]; \
             ld.global.b64 %d{index}, [%d1+{0}]; ld.global.f32 %f{index}, [%d1+{0}]; \
             ld.global.f64 %g{index}, [%d1+{0}]; setp.eq.u32 %p{index}, %r9, {index}; \
             st.shared.b64 [tile+{0}], %d{index}; st.local.b64 [depot+{0}], %d{index};",
            8 * index
        )
        .unwrap();
    }
    for index in 0..600 {
        if index % 50 == 0 {
            writeln!(text, "L{index}: setp.lt.u32 %p2, %r9, {index};\n@%p2 bra L{index};").unwrap();
        }
        text.push_str(&instruction(&mut random));
        text.push('\n');
    }
    text.push_str("ret;\n}\n");
    text
}
