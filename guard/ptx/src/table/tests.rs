//! What the table says of PTX's opcodes.

use super::row::holds_word;
use super::*;
use crate::ast::{Function, Item, Statement};
use crate::parse;

fn of(text: &str) -> (String, Vec<String>) {
    let mut words = text.split('.').map(str::to_owned);
    (words.next().unwrap_or_default(), words.collect())
}

fn row_named(text: &str) -> Option<&'static Row> {
    let (opcode, modifiers) = of(text);
    find(&opcode, &modifiers).map(|form| form.row)
}

/// The rows of an opcode and its forms.
fn rows(opcode: &str) -> impl Iterator<Item = &'static Row> {
    FORMS
        .iter()
        .flatten()
        .filter(move |(name, _)| *name == opcode)
        .flat_map(|(_, forms)| forms)
        .map(|form| form.row)
}

#[test]
fn the_rows_are_sorted_and_no_form_has_two() {
    let mut names = std::collections::HashSet::new();
    for table in TABLES {
        assert!(table.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(table.iter().all(|row| names.insert(row.name)));
    }
}

#[test]
fn an_opcode_that_is_not_in_the_table_is_refused_by_its_name() {
    let mut word = 1_u64;
    println!("seed 1");
    for _ in 0..20_000 {
        let mut name = String::new();
        for _ in 0..3 + word % 6 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            name.push(char::from(b'a' + u8::try_from((word >> 33) % 26).unwrap()));
        }
        if rows(&name).next().is_some() {
            continue;
        }
        let reason = refusal(&name, &[]).map(|reason| reason.to_string()).unwrap_or_default();
        assert!(reason.contains(&format!("the instruction `{name}`")), "{name}: {reason}");
    }
    assert!(refusal("add", &[]).is_none());
}

#[test]
fn a_row_does_not_know_the_words_of_the_forms_that_have_rows_of_their_own() {
    for row in TABLES.iter().flat_map(|table| table.iter()) {
        let (opcode, form) = of(row.name);
        if form.is_empty() {
            continue;
        }
        let same = |other: &Row| {
            (other.treatment, other.destinations, other.memory)
                == (row.treatment, row.destinations, row.memory)
        };
        for other in rows(&opcode).filter(|other| other.form().count() < form.len() && !same(other)) {
            let known = form.iter().all(|word| other.modifiers.iter().any(|words| holds_word(words, word)));
            assert!(!known, "`{}` knows the words of `{}`", other.name, row.name);
        }
    }
}

#[test]
fn a_refused_form_of_an_accepted_opcode_is_refused_by_the_form() {
    for text in ["st.async.shared::cluster.b32", "red.async.add.u32", "barrier.cluster.arrive"] {
        let (opcode, modifiers) = of(text);
        assert!(refusal(&opcode, &modifiers).is_some(), "{text}");
        assert!(refusal(&opcode, &[]).is_none(), "{text}");
    }
}

#[test]
fn rows_name_addresses_only_where_operands_can_be() {
    for row in TABLES.iter().flat_map(|table| table.iter()) {
        let passes = !matches!(row.treatment, Treatment::Refused(_));
        for memory in row.memory {
            assert!(!passes || memory.operand < row.most, "{}", row.name);
            assert!(memory.operand >= row.destinations, "{} writes its address", row.name);
        }
        let accesses = matches!(
            row.treatment,
            Treatment::Load | Treatment::Store | Treatment::Atomic | Treatment::Reduction | Treatment::Copy
        );
        let advises = row.treatment == Treatment::Hint;
        assert!(!passes || advises || accesses != row.memory.is_empty(), "{}", row.name);
    }
}

/// An instruction, its address operands with what is done there, and whether it passes.
type Touching = (&'static str, &'static [(usize, Effect)], bool);

/// Every instruction of PTX that can touch memory.
const TOUCHING_MEMORY: &[Touching] = {
    use Effect::{Reads, Touches, Updates, Writes};
    &[
        ("ld.global.nc.u32", &[(1, Reads)], true),
        ("ld.u32", &[(1, Reads)], true),
        ("ldu.global.u32", &[(1, Reads)], false),
        ("ld.mmio.relaxed.sys.u32", &[(1, Reads)], true),
        ("st.global.u32", &[(0, Writes)], true),
        ("st.mmio.relaxed.sys.u32", &[(0, Writes)], true),
        ("atom.global.add.u32", &[(1, Updates)], true),
        ("red.global.add.u32", &[(0, Updates)], true),
        ("multimem.ld_reduce.add.u32", &[(1, Reads)], false),
        ("multimem.st.u32", &[(0, Writes)], false),
        ("multimem.red.add.u32", &[(0, Updates)], false),
        ("cp.async.ca.shared.global", &[(0, Writes), (1, Reads)], true),
        ("cp.async.cg.shared.global", &[(0, Writes), (1, Reads)], true),
        ("cp.async.bulk.global.shared::cta.bulk_group", &[(0, Writes), (1, Reads), (3, Updates)], false),
        ("cp.reduce.async.bulk.global.shared::cta", &[(0, Updates), (1, Reads), (3, Updates)], false),
        ("cp.async.bulk.prefetch.L2.global", &[(0, Touches)], true),
        ("cp.async.bulk.tensor.2d", &[(0, Writes), (1, Reads), (2, Updates)], false),
        ("cp.reduce.async.bulk.tensor.2d", &[(0, Updates), (1, Reads)], false),
        ("cp.async.bulk.prefetch.tensor.2d", &[(0, Touches)], false),
        ("cp.async.mbarrier.arrive", &[(0, Updates)], false),
        ("tensormap.replace.tile", &[(0, Writes)], false),
        ("tensormap.cp_fenceproxy.global.shared::cta", &[(0, Writes), (1, Reads)], false),
        ("fence.proxy.tensormap::generic.acquire", &[(0, Touches)], false),
        ("prefetch.global.L2", &[(0, Touches)], true),
        ("prefetchu.L1", &[(0, Touches)], true),
        ("prefetch.tensormap", &[(0, Touches)], false),
        ("discard.global.L2", &[(0, Writes)], true),
        ("applypriority.global.L2::evict_normal", &[(0, Touches)], true),
        ("createpolicy.range.global", &[(1, Touches)], false),
        ("wmma.load.a", &[(1, Reads)], true),
        ("wmma.store.d", &[(0, Writes)], true),
        ("ldmatrix.sync", &[(1, Reads)], true),
        ("stmatrix.sync", &[(0, Writes)], true),
        ("mbarrier.init", &[(0, Updates)], false),
        ("mbarrier.inval", &[(0, Updates)], false),
        ("mbarrier.expect_tx", &[(0, Updates)], false),
        ("mbarrier.complete_tx", &[(0, Updates)], false),
        ("mbarrier.arrive", &[(1, Updates)], false),
        ("mbarrier.arrive_drop", &[(1, Updates)], false),
        ("mbarrier.test_wait", &[(1, Updates)], false),
        ("mbarrier.try_wait", &[(1, Updates)], false),
        ("clusterlaunchcontrol.try_cancel", &[(0, Writes), (1, Updates)], false),
        ("st.async", &[(0, Writes), (2, Updates)], false),
        ("red.async", &[(0, Updates), (2, Updates)], false),
        ("mapa", &[], false),
        ("st.bulk", &[(0, Writes)], false),
        ("tcgen05.alloc", &[(0, Writes)], false),
        ("tcgen05.ld", &[(1, Reads)], false),
        ("tcgen05.st", &[(0, Writes)], false),
        ("tcgen05.mma", &[(0, Updates)], false),
        ("tcgen05.commit", &[(0, Updates)], false),
        ("tex.2d", &[(1, Reads)], false),
        ("tld4.r", &[(1, Reads)], false),
        ("suld.b", &[(1, Reads)], false),
        ("sust.b", &[(0, Writes)], false),
        ("sured.b", &[(0, Updates)], false),
        ("txq.width", &[(1, Reads)], false),
        ("suq.width", &[(1, Reads)], false),
        ("wgmma.mma_async", &[], false),
        ("alloca", &[], false),
        ("call", &[], false),
        ("brx.idx", &[], false),
    ]
};

#[test]
fn every_instruction_that_can_touch_memory_has_a_row_with_its_addresses() {
    for (text, addresses, passes) in TOUCHING_MEMORY {
        let row = row_named(text).unwrap_or_else(|| unreachable!("{text} has no row"));
        let found: Vec<(usize, Effect)> =
            row.memory.iter().map(|memory| (memory.operand, memory.effect)).collect();
        assert_eq!(found, *addresses, "{text}");
        assert_eq!(!matches!(row.treatment, Treatment::Refused(_)), *passes, "{text}");
    }
}

/// PTX ISA 9.0, "Instruction Set".
const OPCODES: &str = "abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk \
    bra brev brkpt brx call clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta discard div \
    dp2a dp4a elect ex2 exit fence fma fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 \
    mad mad24 madc mapa match max mbarrier membar min mma mov movmatrix mul mul24 multimem nanosleep neg not or \
    pmevent popc prefetch prefetchu prmt rcp red redux rem ret rsqrt sad selp set setmaxnreg setp shf shfl shl \
    shr sin slct sqrt st stackrestore stacksave stmatrix sub subc suld suq sured sust szext tanh tcgen05 \
    tensormap testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 vavrg4 vmad vmax \
    vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma xor";

#[test]
fn every_opcode_of_ptx_has_a_row() {
    for opcode in OPCODES.split_whitespace() {
        assert!(find(opcode, &[]).is_some(), "{opcode}");
    }
    for row in TABLES.iter().flat_map(|table| table.iter()) {
        let (opcode, _) = of(row.name);
        // No text has one that begins so.
        let ours = matches!(row.name, GATE | CLEAR) && opcode.starts_with('%');
        assert!(ours || OPCODES.split_whitespace().any(|known| known == opcode), "{opcode}");
    }
}

#[test]
fn what_stands_for_more_while_a_body_is_confined_is_no_ptx() {
    let top = ".version 9.0\n.target sm_90\n.address_size 64\n.entry k() {\n.reg .b32 %r<2>;\n";
    crate::parse(&format!("{top}mov.u32 %r1, 0;\n}}\n")).unwrap();
    for line in [
        format!("{GATE} (%r1), 0, (%r1), 1"),
        format!("{GATE} %r1, 0, %r1, 1"),
        format!("{CLEAR} 1"),
        format!("bar.warp.sync.{WHOLE} -1"),
    ] {
        assert!(crate::parse(&format!("{top}{line};\n}}\n")).is_err(), "{line}");
    }
}

#[test]
fn lanes_go_on_apart_behind_sleeps_and_what_ptxas_branches_around() {
    let parted = |text: &str| {
        let module = parse(&format!(
            ".version 8.0\n.target sm_75\n.address_size 64\n.entry k()\n{{\n.reg .pred %p<2>;\n{text}\n}}"
        ))
        .unwrap();
        let Some(Item::Function(Function { body: Some(body), .. })) = module.items.first() else {
            panic!("{text}")
        };
        let Some(Statement::Instruction(found)) = body.last() else { panic!("{text}") };
        parts(row_of(found).unwrap(), found)
    };
    assert!(parted("@%p1 nanosleep.u32 5;") && parted("@%p1 bra $l;") && parted("exit;"));
    assert!(parted("nanosleep.u32 5;") && !parted("@%p1 trap;"));
    assert!(
        parted("div.rn.f32 %f1, %f2, %f3;")
            && parted("rem.s64 %d1, %d2, %d3;")
            && parted("rcp.rn.f64 %d1, %d2;")
    );
    assert!(
        parted("bfind.u64 %r1, %d1;")
            && parted("atom.shared.add.f64 %d1, [%r2], %d3;")
            && parted("atom.shared::cta.add.f64 %d1, [%r2], %d3;")
            && parted("red.shared::cta.add.u32 [%r2], %r2;")
            && parted("@%p1 membar.sys;")
            && parted("@!%p1 red.global.add.u32 [%d1], %r2;")
    );
    assert!(
        !parted("bfind.u32 %r1, %r2;")
            && !parted("membar.sys;")
            && !parted("red.global.add.u32 [%d1], %r2;")
            && !parted("@%p1 st.global.u32 [%d1], %r2;")
    );
    assert!(
        !parted("div.approx.f32 %f1, %f2, %f3;")
            && !parted("rcp.approx.f32 %f1, %f2;")
            && !parted("mul.lo.u32 %r1, %r2, %r3;")
    );
}

/// What ptxas makes many instructions of counts for many: a thread may do so much until it looks whether it is to end.
#[test]
fn what_takes_long_costs_much() {
    for (text, least) in [
        ("div.rn.f32 %f1, %f1, %f1;", 100),
        ("div.approx.f32 %f1, %f1, %f1;", 4),
        ("div.rn.f64 %g1, %g1, %g1;", 100),
        ("rem.s64 %d1, %d1, %d1;", 80),
        ("div.u32 %r1, %r1, %r1;", 20),
        ("sqrt.rn.f64 %g1, %g1;", 56),
        ("rcp.rn.f32 %f1, %f1;", 20),
        ("fns.b32 %r1, %r1, 0, 1;", 48),
        ("vavrg4.u32.u32.u32 %r1, %r1, %r1, %r1;", 48),
        ("ld.local.u32 %r1, [%d1];", 8),
        ("ld.global.v4.u32 {%r1, %r1, %r1, %r1}, [%d1];", 16),
        ("st.volatile.global.u32 [%d1], %r1;", 16),
        ("cp.async.ca.shared.global [%r1], [%d1], 4;", 16),
        ("st.release.sys.global.u32 [%d1], %r1;", 64),
        ("ld.acquire.gpu.global.u32 %r1, [%d1];", 64),
        ("atom.acq_rel.sys.shared.add.u32 %r1, [%d1], %r1;", 64),
        ("st.release.cta.shared.u32 [%r1], %r1;", 64),
        ("atom.acq_rel.cta.shared.add.u32 %r1, [%r1], %r1;", 64),
        ("shr.s16 %h1, %h1, %r1;", 7),
        ("shl.b16 %h1, %h1, %r1;", 7),
        ("add.sat.s32 %r1, %r1, %r1;", 6),
        ("abs.s64 %d1, %d1;", 6),
        ("cnot.b64 %d1, %d1;", 6),
        ("cvt.sat.s16.u16 %h1, %h1;", 6),
        ("mul.hi.s64 %d1, %d1, %d1;", 19),
        ("mad.hi.u64 %d1, %d1, %d1, %d1;", 10),
        ("bfe.s64 %d1, %d1, %r1, %r1;", 20),
        ("bfi.b64 %d1, %d1, %d1, %r1, %r1;", 16),
        ("madc.hi.cc.s64 %d1, %d1, %d1, %d1;", 22),
        ("cvt.rni.sat.f64.f64 %g1, %g1;", 16),
        ("cvt.sat.s32.s64 %r1, %d1;", 9),
        ("mad24.hi.s32 %r1, %r1, %r1, %r1;", 9),
        ("isspacep.shared %p1, %d1;", 12),
        ("rcp.approx.f32 %f1, %f1;", 8),
        ("max.f64 %g1, %g1, %g1;", 8),
        ("clz.b64 %r1, %d1;", 8),
        ("barrier.sync 0;", 32),
        ("nanosleep.u32 100000;", 100_000),
    ] {
        let registers = ".reg .pred %p<2>;\n.reg .b16 %h<2>;\n.reg .b32 %r<2>;\n.reg .b64 %d<2>;\n.reg .f32 %f<2>;\n.reg .f64 %g<2>;\n";
        let top = ".version 8.0\n.target sm_75\n.address_size 64\n.entry k()\n{\n";
        let module = parse(&format!("{top}{registers}{text}\n}}")).unwrap();
        let Some(Item::Function(Function { body: Some(body), .. })) = module.items.first() else {
            panic!("{text}")
        };
        let Some(Statement::Instruction(found)) = body.last() else { panic!("{text}") };
        let cost = cost(row_of(found).unwrap(), found);
        assert!((least..4 * least).contains(&cost), "{text} costs {cost}");
    }
}
