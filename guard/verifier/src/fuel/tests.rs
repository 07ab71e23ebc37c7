//! Each rule by itself; and programs and claims by chance, which are executed: what was accepted never spends more between two
//! polls than it may.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

use super::super::turns::{Sign, Test, Way};
use super::*;
use crate::ast::{Item, Operand};
use crate::claims::fuel::{Fuel, Of as ClaimedOf};
use crate::limits::PATH_COST_MAX;
use crate::made;
use crate::print::Text;

const PATH: u64 = PATH_COST_MAX;

/// Instructions on three registers, that live as long as the tests.
fn pool() -> &'static [Instruction] {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<4>;\n\
                add.s32 %r0, %r0, 1;\nadd.s32 %r0, %r0, 3;\nadd.s32 %r1, %r1, %r2;\nadd.s32 %r1, %r1, 1;\n\
                mov.u32 %r0, 7;\nmov.u32 %r2, 2;\nadd.s32 %r2, %r2, 1;\nadd.s32 %r1, %r1, -4;\nret;\n}\n";
    let module = Box::leak(Box::new(bulkhead_ptx::parse(text).unwrap()));
    let Some(Item::Function(function)) = module.items.first() else { panic!("no entry") };
    let instructions = function.body.as_deref().unwrap().iter().filter_map(|statement| match statement {
        Statement::Instruction(found) if found.opcode != "ret" => Some(found.clone()),
        _ => None,
    });
    Box::leak(instructions.collect::<Vec<_>>().into_boxed_slice())
}

fn events(kind: Kind, counters: &[By<'static>], all: &[Event<'static>]) -> Events<'static> {
    let mut events = Events::new(kind, false, &[]);
    events.counters = counters.to_vec();
    events.labels = all
        .iter()
        .filter_map(|event| if let Event::Label(name) = event { Some(*name) } else { None })
        .collect();
    events.events = all.iter().map(|event| (*event, Span::default())).collect();
    events
}

fn none(_: &str) -> Option<u64> {
    None
}

/// Whether a body is accepted with what is worked out for it.
fn accepted(counters: &[By<'static>], all: &[Event<'static>]) -> bool {
    let events = events(Kind::Looks, counters, all);
    events.check(&made::fuel::of(&events, none), none).is_ok()
}

const COUNT: By<'static> = By::Count(100);
const STEP: By<'static> =
    By::Step { register: "%r1", test: Test::Less(Sign::Signed), way: Way::Times("%r2", 100) };

#[test]
fn what_is_spent_between_polls_is_bounded() {
    use Event::{Costs, Ends, Goes, Label, Look, Poll, Set, Turns, Writes};
    let step = pool().iter().find(|found| Text(*found).is("add.s32 %r1, %r1, %r2")).unwrap();
    let steps = Event::Register(step, "%r1");
    let loops = |all: &[Event<'static>]| accepted(&[COUNT], all);
    assert!(loops(&[Look(2), Costs(PATH), Ends]) && !loops(&[Look(2), Costs(PATH + 1), Ends]));
    assert!(loops(&[Costs(64), Look(2), Writes, Ends]) && !loops(&[Costs(65), Look(2), Ends]));
    assert!(!loops(&[Costs(1), Writes, Look(2), Ends]));
    assert!(loops(&[Look(2), Costs(PATH), Poll, Costs(PATH), Ends]));
    // A loop that polls, one that does not, and one that polls on one of two ways.
    assert!(loops(&[Look(2), Label("a"), Costs(9), Poll, Costs(1), Goes("a"), Ends]));
    assert!(!loops(&[Look(2), Label("a"), Costs(9), Goes("a"), Ends]));
    assert!(!loops(&[Look(2), Label("a"), Goes("b"), Poll, Label("b"), Costs(9), Goes("a"), Ends]));
    // So many turns.
    let turns = |cost, event| loops(&[Look(2), Set(0, COUNT), Label("a"), Costs(cost), event, Ends]);
    assert!(turns(PATH / 100, Turns(0, "a")) && !turns(PATH / 100 + 1, Turns(0, "a")));
    // A counter that nobody set on the way there, and one that is set anew in the loop.
    assert!(!loops(&[Look(2), Goes("a"), Set(0, COUNT), Label("a"), Costs(9), Turns(0, "a"), Ends]));
    assert!(!loops(&[Look(2), Label("b"), Set(0, COUNT), Label("a"), Costs(9), Turns(0, "b"), Ends]));
    // Steps: one in each turn, none, one on one way only, and the step changes.
    let stepping = |inside: &[Event<'static>]| {
        let all = [&[Look(2), Set(0, STEP), Label("a")], inside, &[Costs(9), Turns(0, "a"), Ends]].concat();
        accepted(&[STEP], &all)
    };
    assert!(stepping(&[Costs(1), steps]));
    assert!(!stepping(&[Costs(1)]));
    assert!(!stepping(&[Costs(1), Goes("b"), steps, Label("b")]));
    let changes = pool().iter().find(|found| Text(*found).is("mov.u32 %r2, 2")).unwrap();
    assert!(!stepping(&[Costs(1), steps, Event::Register(changes, "%r2")]));
    assert!(!stepping(&[Costs(1), Event::Register(changes, "%r1"), steps]));
}

#[test]
fn a_label_whose_turns_are_claimed_is_come_to_so_often() {
    use Event::{Costs, Ends, Goes, Label, Look};
    let all = [Look(2), Label("a"), Costs(PATH / 10), Goes("a"), Ends];
    let events = events(Kind::Looks, &[], &all);
    let turns = |turns: u64| move |_: &str| Some(turns);
    assert!(events.check(&made::fuel::of(&events, turns(10)), turns(10)).is_ok());
    assert!(events.check(&made::fuel::of(&events, turns(11)), turns(11)).is_err());
    // What is claimed for ten is not enough for eleven, and nothing without any.
    assert!(events.check(&made::fuel::of(&events, turns(10)), turns(11)).is_err());
    assert!(events.check(&made::fuel::of(&events, turns(10)), none).is_err());
}

#[test]
fn loops_whose_pointers_were_checked_turn_as_often_as_that_was_for() {
    use Event::{Checked, Costs, Ends, Goes, Label, Look, Set, Turns};
    let checked = |most, inside: &[Event<'static>]| {
        let head = [Look(2), Set(0, COUNT), Checked("a", 0, most), Label("a"), Costs(9)];
        accepted(&[COUNT], &[&head[..], inside, &[Ends]].concat())
    };
    assert!(checked(100, &[Turns(0, "a")]) && !checked(99, &[Turns(0, "a")]));
    assert!(!checked(100, &[Turns(0, "a"), Turns(0, "a")]));
    assert!(!checked(100, &[Event::Poll, Goes("a")]));
    assert!(!checked(100, &[Goes("b"), Label("b"), Turns(0, "a")]));
    // A turn without a step is no turn that was counted, though it polls.
    let head = [Look(2), Set(0, STEP), Checked("a", 0, 100), Label("a"), Event::Poll];
    let step = pool().iter().find(|found| Text(*found).is("add.s32 %r1, %r1, %r2")).unwrap();
    let steps = [Event::Register(step, "%r1"), Turns(0, "a"), Ends];
    assert!(accepted(&[STEP], &[&head[..], &steps].concat()));
    assert!(!accepted(&[STEP], &[&head[..], &steps[1..]].concat()));
}

/// Numbers by chance: xorshift.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

const LABELS: [&str; 5] = ["a", "b", "c", "d", "e"];

struct Program {
    counters: Vec<By<'static>>,
    all: Vec<Event<'static>>,
    turns: HashMap<&'static str, u64>,
}

fn program(chance: &mut Chance, pool: &'static [Instruction]) -> Program {
    let (mut counters, mut all) = (Vec::new(), vec![Event::Look(2)]);
    let mut turns = HashMap::default();
    let labels = 1 + usize::try_from(chance.below(4)).unwrap();
    let mut left = LABELS[..labels].iter();
    let mut heads: Vec<(u32, &'static str)> = Vec::new();
    for _ in 0..6 + chance.below(16) {
        match chance.below(12) {
            0..=2 => {
                let Some(label) = left.next() else { continue };
                if chance.below(3) > 0 {
                    let by = match chance.below(5) {
                        0 | 1 => By::Count(1 + chance.below(12)),
                        2 => STEP_OF(chance),
                        _ => {
                            let test = chance.of(&[Test::Less(Sign::Signed), Test::Less(Sign::Unsigned)]);
                            By::Step {
                                register: "%r0",
                                test,
                                way: Way::Far(3 * (1 + i128::from(chance.below(5)))),
                            }
                        }
                    };
                    let number = u32::try_from(counters.len()).unwrap();
                    counters.push(by);
                    heads.push((number, label));
                    all.push(Event::Set(number, by));
                } else if chance.below(3) == 0 {
                    turns.insert(*label, 1 + chance.below(6));
                }
                all.push(Event::Label(label));
            }
            3..=5 => {
                let cost = chance.of(&[1, 1 << 12, 1 << 14, 1 << 16, 3 << 15]);
                all.push(if chance.below(3) == 0 { Event::BlockWait(cost) } else { Event::Costs(cost) });
            }
            6 | 7 if !heads.is_empty() => {
                let (number, label) = chance.of(&heads);
                let label = if chance.below(6) == 0 { chance.of(&LABELS[..labels]) } else { label };
                all.push(Event::Turns(number, label));
            }
            8 => {
                let found = &pool[usize::try_from(chance.below(pool.len() as u64)).unwrap()];
                let Some(Operand::Register(name)) = found.operands.first() else { panic!("a register") };
                all.push(Event::Register(found, name));
            }
            9 => all.push(Event::Register(&pool[1], "%r0")),
            10 if chance.below(3) == 0 => all.push(Event::Poll),
            _ => {
                all.push(Event::Goes(chance.of(&LABELS[..labels])));
                if chance.below(4) == 0 {
                    all.push(Event::Ends);
                }
            }
        }
    }
    all.extend(left.map(|label| Event::Label(label)));
    all.push(Event::Costs(1));
    all.push(Event::Ends);
    Program { counters, all, turns }
}

#[allow(non_snake_case, reason = "beside the constants")]
fn STEP_OF(chance: &mut Chance) -> By<'static> {
    let test = chance.of(&[Test::Less(Sign::Signed), Test::Less(Sign::Unsigned)]);
    let turns = 1 + chance.below(9);
    By::Step { register: "%r1", test, way: Way::Times("%r2", turns) }
}

/// Claims that are not what was worked out.
fn other(chance: &mut Chance, mut fuel: Fuel) -> Fuel {
    for claim in fuel.labels.values_mut() {
        if chance.below(3) == 0 {
            claim.poll += chance.of(&[-(1 << 16), -1, 1, 1 << 14, 1 << 17]);
        }
        for term in &mut claim.terms {
            match chance.below(12) {
                0 => term.poll = chance.below(1 << 17),
                1 => term.is_some ^= true,
                2 => term.fell = u32::try_from(chance.below(3)).unwrap(),
                3 => term.of = ClaimedOf::Counter(u32::try_from(chance.below(3)).unwrap()),
                _ => {}
            }
        }
        if chance.below(8) == 0 {
            claim.terms.pop();
        }
    }
    if chance.below(4) == 0 {
        fuel.steps.values_mut().for_each(|step| *step = chance.of(&[1, 3, -4]));
    }
    fuel
}

/// What a register is behind an instruction of the pool.
fn runs(instruction: &Instruction, registers: &mut [i32; 3]) {
    let at = |operand: &Operand| match operand {
        Operand::Register(name) => usize::from(name.as_bytes()[2] - b'0'),
        _ => panic!("a register"),
    };
    let value = |operand: &Operand, registers: &[i32; 3]| match operand {
        Operand::Integer(value) => i32::try_from(*value).unwrap(),
        operand => registers[at(operand)],
    };
    let [to, from, ..] = instruction.operands.as_slice() else { panic!("operands") };
    let first = value(from, registers);
    let second = instruction.operands.get(2).map_or(0, |operand| value(operand, registers));
    registers[at(to)] = first.wrapping_add(second);
}

/// What a program does that none may that is accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// It spends more than it may between two polls.
    Spends,
    /// It asks a counter that was not set on the way.
    Reads,
}

/// Executes a program by chance, up to the first harm.
fn harm(program: &Program, chance: &mut Chance) -> Option<Harm> {
    let at: HashMap<&str, usize> = (0..)
        .zip(&program.all)
        .filter_map(|(at, event)| if let Event::Label(name) = event { Some((*name, at)) } else { None })
        .collect();
    let odd = [0, 1, -1, 7, i32::MAX, i32::MIN, 1_000_000];
    let mut registers = [0; 3].map(|_: i32| chance.of(&odd));
    let mut counters: Vec<i32> = program.counters.iter().map(|_| chance.of(&odd)).collect();
    let mut set = vec![false; counters.len()];
    let mut left: HashMap<&str, u64> = HashMap::default();
    let eager = 2 + chance.below(20);
    let (mut here, mut spent) = (0, 0);
    for _ in 0..4000 {
        let mut to = None;
        match program.all[here] {
            Event::Costs(cost) | Event::BlockWait(cost) => spent += cost,
            Event::Poll => spent = 0,
            Event::Register(instruction, _) => runs(instruction, &mut registers),
            Event::Ends => return None,
            Event::Goes(label) => to = Some(label).filter(|_| chance.below(eager) > 0),
            Event::Set(number, by) => {
                let register = |name: &str| registers[usize::from(name.as_bytes()[2] - b'0')];
                set[number as usize] = true;
                counters[number as usize] = match by {
                    By::Count(turns) => i32::try_from(turns).unwrap(),
                    By::Step { register: name, test, way } => {
                        let far = match way {
                            Way::Times(step, turns) => {
                                register(step).wrapping_mul(i32::try_from(turns).unwrap())
                            }
                            Way::Far(far) => i32::try_from(far).unwrap(),
                        };
                        let all = register(name).wrapping_add(far);
                        let bound = chance.of(&odd);
                        match test {
                            Test::Less(Sign::Unsigned) => {
                                all.cast_unsigned().min(bound.cast_unsigned()).cast_signed()
                            }
                            Test::Less(Sign::Signed) => all.min(bound),
                            Test::LessOrEqual(_) => all,
                        }
                    }
                };
            }
            Event::Turns(number, label) => {
                if !set[number as usize] {
                    return Some(Harm::Reads);
                }
                let counter = &mut counters[number as usize];
                let goes = match program.counters[number as usize] {
                    By::Count(_) => {
                        *counter = counter.wrapping_sub(1);
                        *counter > 0 && chance.below(eager) > 0
                    }
                    By::Step { register, test, .. } => {
                        let register = registers[usize::from(register.as_bytes()[2] - b'0')];
                        match test {
                            Test::Less(Sign::Unsigned) => register.cast_unsigned() < counter.cast_unsigned(),
                            Test::Less(Sign::Signed) => register < *counter,
                            Test::LessOrEqual(_) => register <= *counter,
                        }
                    }
                };
                to = Some(label).filter(|_| goes);
            }
            Event::Label(_) | Event::Look(_) | Event::Writes | Event::Checked(..) => {}
        }
        if spent > PATH {
            return Some(Harm::Spends);
        }
        let next = to.map_or(here + 1, |label| at[label]);
        // The checker of numbers sees to how often a label whose turns are claimed is come to.
        if let Event::Label(label) = program.all[next]
            && let Some(turns) = program.turns.get(label)
        {
            let is_back = next <= here;
            let left = left.entry(label).or_insert(*turns);
            *left = if is_back { *left } else { *turns };
            if is_back && *left <= 1 {
                here += 1;
                continue;
            }
            *left -= u64::from(is_back);
        }
        here = next;
    }
    None
}

#[test]
fn what_is_accepted_with_claims_by_chance_spends_no_more_than_it_may_and_asks_no_unset_counter() {
    let pool = pool();
    let mut chance = Chance(0x9E37_79B9_7F4A_7C15);
    let (mut accepted, mut looping, mut spent, mut unset) = (0, 0, 0, 0);
    for _ in 0..60_000 {
        let program = program(&mut chance, pool);
        let events = events(Kind::Looks, &program.counters, &program.all);
        let turns = |label: &str| program.turns.get(label).copied();
        let fuel = made::fuel::of(&events, turns);
        let fuel = if chance.below(3) == 0 { fuel } else { other(&mut chance, fuel) };
        let is_accepted = events.check(&fuel, turns).is_ok();
        let goes_back = program.all.iter().any(|event| matches!(event, Event::Turns(..)));
        for _ in 0..6 {
            let harm = harm(&program, &mut chance);
            assert!(harm.is_none() || !is_accepted, "{:?}\n{:?}\n{fuel}", program.all, program.counters);
            spent += usize::from(harm == Some(Harm::Spends));
            unset += usize::from(harm == Some(Harm::Reads));
        }
        accepted += usize::from(is_accepted);
        looping += usize::from(is_accepted && goes_back);
    }
    let enough = accepted > 10_000 && looping > 2_000 && spent > 5_000 && unset > 1_000;
    assert!(enough, "{accepted} {looping} {spent} {unset}");
}
