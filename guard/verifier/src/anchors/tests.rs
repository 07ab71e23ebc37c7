use super::*;

fn anchor(register: &str, writes: bool, align: u64) -> Anchor<'_> {
    Anchor { register, writes, align }
}

fn step(register: &str, bound: i64) -> Step<'_> {
    Step { register, bound }
}

fn written(check: &Check<'_>) -> Vec<Statement> {
    check.instructions().into_iter().map(Statement::Instruction).collect()
}

/// Whether what is written of it is read as that check, whatever stands behind.
fn is_read(anchors: Vec<Anchor<'_>>, steps: Vec<Step<'_>>) -> bool {
    let check = Check { anchors, steps, label: "L1" };
    let mut statements = written(&check);
    let count = statements.len();
    statements.push(Statement::Instruction(tests()));
    let read = Check::parse(&statements);
    assert!(read.is_none() || read == Some((check.clone(), count)), "{check:?} is read as {read:?}");
    read.is_some()
}

#[test]
fn a_check_is_read_as_it_is_written() {
    assert!(is_read(vec![anchor("%d1", false, 1)], Vec::new()));
    assert!(is_read(vec![anchor("%d1", true, 1)], Vec::new()));
    for align in [2, 4, 8, 16] {
        assert!(is_read(vec![anchor("%d1", true, align), anchor("%d7", false, 1)], vec![step("%d3", 1)]));
    }
    assert!(is_read(vec![anchor("%d1", false, 4)], vec![step("%d3", 1 << 40), step("%d4", 64)]));
}

#[test]
fn what_an_anchor_is_a_multiple_of_is_a_power_of_two_and_no_more_than_the_widest_access() {
    assert_eq!(names::WIDEST_ACCESS, 16);
    for align in [3, 6, 32, 64, 1 << 20] {
        assert!(!is_read(vec![anchor("%d1", false, align)], Vec::new()), "{align}");
    }
}

#[test]
fn what_a_turn_adds_is_bounded_by_a_power_of_two_up_to_2_to_the_40() {
    for bound in [0, -1, -64, 3, 96, 1 << 41, i64::MIN] {
        let check =
            Check { anchors: vec![anchor("%d1", false, 1)], steps: vec![step("%d3", 64)], label: "L1" };
        let mut statements = written(&check);
        let lines = [
            plain("add", &["s64"], vec![register("%bh_a"), register("%d3"), number(bound.into())]),
            plain(
                "setp",
                &["ge", "or", "u64"],
                vec![register("%bh_q"), register("%bh_a"), number(2 * i128::from(bound)), register("%bh_q")],
            ),
        ];
        let at = statements.len() - 3;
        for (offset, line) in lines.into_iter().enumerate() {
            statements[at + offset] = Statement::Instruction(line);
        }
        assert!(Check::parse(&statements).is_none(), "{bound}");
    }
}

#[test]
fn only_64_bit_registers_of_the_tenants_are_checked() {
    for register in ["%r1", "%p1", "%bh_a", "%bh_k", "%d", "%tid"] {
        assert!(!is_read(vec![anchor(register, false, 1)], Vec::new()), "{register}");
        assert!(!is_read(vec![anchor("%d1", false, 1)], vec![step(register, 64)]), "{register}");
    }
}

#[test]
fn without_an_anchor_it_is_none() {
    assert!(!is_read(Vec::new(), Vec::new()));
    assert!(!is_read(Vec::new(), vec![step("%d3", 64)]));
}

#[test]
fn no_line_of_a_check_may_be_missing_twice_or_another() {
    let check = Check {
        anchors: vec![anchor("%d1", true, 4), anchor("%d2", false, 1)],
        steps: vec![step("%d3", 64)],
        label: "L1",
    };
    let whole = written(&check);
    let is_it = |statements: &[Statement]| Check::parse(statements).is_some_and(|(read, _)| read == check);
    assert!(is_it(&whole));
    for at in 0..whole.len() {
        let mut missing = whole.clone();
        let line = missing.remove(at);
        assert!(!is_it(&missing), "without line {at}");
        let mut twice = whole.clone();
        twice.insert(at, line.clone());
        // Behind the last another may stand.
        assert!(!is_it(&twice) || at + 1 == whole.len(), "line {at} twice");
        let Statement::Instruction(line) = line else { panic!("a check is instructions") };
        let mut others = Vec::new();
        // A predicate, another opcode, another modifier, and each operand another one.
        let negated = line.predicate.as_ref().is_some_and(|predicate| !predicate.negated);
        others.push(Instruction {
            predicate: Some(Predicate { register: "%bh_q".to_owned(), negated }),
            ..line.clone()
        });
        others.push(Instruction { opcode: "xor".to_owned(), ..line.clone() });
        let mut modifiers = line.modifiers.clone();
        modifiers.push("ftz".to_owned());
        others.push(Instruction { modifiers, ..line.clone() });
        for operand in 0..line.operands.len() {
            let mut operands = line.operands.clone();
            operands[operand] = match &operands[operand] {
                Operand::Integer(value) => Operand::Integer(value ^ 1 << 20),
                Operand::Symbol(_) => Operand::Symbol("L2".to_owned()),
                _ => register("%bh_m"),
            };
            others.push(Instruction { operands, ..line.clone() });
        }
        for other in others {
            let mut changed = whole.clone();
            changed[at] = Statement::Instruction(other.clone());
            assert!(!is_it(&changed), "line {at} is {}", Text(&other));
        }
    }
}

#[test]
fn a_loop_is_what_stands_between_its_label_and_the_first_branch_back_to_it_without_a_label_inside() {
    let to = |label: &str| Statement::Instruction(plain("bra", &[], vec![Operand::Symbol(label.to_owned())]));
    let add = || Statement::Instruction(tests());
    let label = || Statement::Label("M".to_owned(), Span::default());
    assert_eq!(turns(&[add(), to("E"), add(), to("L"), to("L")], "L").map(<[_]>::len), Some(3));
    assert_eq!(turns(&[to("L")], "L").map(<[_]>::len), Some(0));
    assert_eq!(turns(&[add(), label(), to("L")], "L"), None);
    assert_eq!(turns(&[add(), to("E")], "L"), None);
}
