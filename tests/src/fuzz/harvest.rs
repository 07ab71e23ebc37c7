//! What an attacker learns from what the kernel sends.

use std::rc::Rc;

use capnp::{
    message::ReaderOptions,
    private::layout::PointerReader,
    serialize, struct_list,
    traits::{FromPointerReader as _, Imbue as _},
};
use capnp_rpc::rpc_capnp::{cap_descriptor, disembargo, message as rpc, payload, return_};

use super::{
    attacker::Attacker,
    coverage::{Coverage, Outcome},
    message::nobody,
    schema::{Member, Shape, What},
    untyped::{Struct, Untyped},
};

/// Structs of a type, and numbers of a name, that an attacker remembers.
const REMEMBERED: usize = 16;
/// Elements of a list that are looked at.
const ELEMENTS: u32 = 16;
/// Words of a struct that can be told back.
const WORDS: usize = 4;

/// Learns from one message.
pub(super) fn learn(mut bytes: &[u8], attacker: &mut Attacker, coverage: &mut Coverage) -> capnp::Result<()> {
    let message = serialize::read_message_from_flat_slice_no_alloc(&mut bytes, ReaderOptions::new())?;
    match message.get_root::<rpc::Reader<'_>>()?.which()? {
        rpc::Return(returned) => learn_return(returned?, attacker, coverage)?,
        rpc::Call(call) => {
            let call = call?;
            attacker.asked.push(call.get_question_id());
            for id in exports(call.get_params()?)?.into_iter().flatten() {
                attacker.has(id, None);
            }
        }
        rpc::Disembargo(disembargo) => {
            if let disembargo::context::SenderLoopback(id) = disembargo?.get_context().which()? {
                attacker.embargoes.push(id);
            }
        }
        _ => {}
    }
    Ok(())
}

fn learn_return(
    returned: return_::Reader<'_>,
    attacker: &mut Attacker,
    coverage: &mut Coverage,
) -> capnp::Result<()> {
    let id = returned.get_answer_id();
    let method = attacker.questions.iter().find(|question| question.id == id).and_then(|asked| asked.method);
    let outcome = match returned.which()? {
        return_::Results(results) => learn_results(results?, method, attacker)?,
        _ => Outcome::Failed,
    };
    for question in attacker.questions.iter_mut().filter(|question| question.id == id) {
        question.ended = Some(outcome);
    }
    if let Some(method) = method {
        coverage.ended(method, outcome);
    }
    Ok(())
}

fn learn_results(
    results: payload::Reader<'_>,
    method: Option<(usize, usize)>,
    attacker: &mut Attacker,
) -> capnp::Result<Outcome> {
    let exports = exports(results)?;
    let Some((interface, method)) = method else {
        let first = attacker.first();
        exports.into_iter().flatten().for_each(|id| attacker.has(id, first));
        return Ok(Outcome::Answered);
    };
    let interfaces = Rc::clone(&attacker.interfaces);
    let known = interfaces.get(interface).and_then(|interface| interface.methods.get(method));
    let Some(method) = known else { return Ok(Outcome::Answered) };
    // Somebody for each capability of the table, to be known again in the content.
    let stand_ins: Vec<_> = exports.iter().map(|_| Some(nobody())).collect();
    let places: Vec<usize> = stand_ins.iter().flatten().map(|hook| hook.get_ptr()).collect();
    let mut content = results.get_content();
    content.imbue(&stand_ins);
    let root: Struct<'_> = content.get_as()?;
    let mut harvest = Harvest { attacker, exports, places, refused: false };
    harvest.reap(&root, &method.results)?;
    Ok(if harvest.refused { Outcome::Refused } else { Outcome::Answered })
}

/// The exports that the table of a message names.
fn exports(payload: payload::Reader<'_>) -> capnp::Result<Vec<Option<u32>>> {
    let mut exports = Vec::new();
    for descriptor in payload.get_cap_table()? {
        exports.push(match descriptor.which()? {
            cap_descriptor::SenderHosted(id) | cap_descriptor::SenderPromise(id) => Some(id),
            _ => None,
        });
    }
    Ok(exports)
}

struct Harvest<'a> {
    attacker: &'a mut Attacker,
    exports: Vec<Option<u32>>,
    /// What tells the table's capabilities apart.
    places: Vec<usize>,
    refused: bool,
}

impl Harvest<'_> {
    fn reap(&mut self, from: &Struct<'_>, shape: &Shape) -> capnp::Result<()> {
        let which: u16 = from.0.get_data_field(shape.which as usize);
        self.refused |= shape.refusal == Some(which);
        let words: [u64; WORDS] = std::array::from_fn(|at| from.0.get_data_field(at));
        let plain = |member: &Member| matches!(member.what, What::Bits(..));
        if words != [0; WORDS] && shape.members.iter().all(plain) {
            remember(&mut self.attacker.structs, (shape.id, words));
        }
        for member in shape.members.iter().filter(|member| member.case.is_none_or(|case| case == which)) {
            self.member(from, member)?;
        }
        Ok(())
    }

    fn member(&mut self, from: &Struct<'_>, member: &Member) -> capnp::Result<()> {
        let pointer = |place: &u16| from.0.get_pointer_field(usize::from(*place));
        match &member.what {
            What::Capability(place, interface) => self.capability(&pointer(place), *interface),
            What::Struct(place, inner) => {
                let inside = Struct(pointer(place).get_struct(None)?);
                return self.reap(&inside, inner);
            }
            What::Structs(place, inner) => {
                let pointer = pointer(place);
                let list = struct_list::Reader::<'_, Untyped>::get_from_pointer(&pointer, None)?;
                for at in 0..list.len().min(ELEMENTS) {
                    self.reap(&list.get(at), inner)?;
                }
            }
            What::Group(inner) => return self.reap(from, inner),
            What::Bits(bits, offset) => {
                let at = *offset as usize;
                let value = match bits {
                    32 => u64::from(from.0.get_data_field::<u32>(at)),
                    _ => from.0.get_data_field::<u64>(at),
                };
                if value != 0 {
                    remember(&mut self.attacker.numbers, (member.name.clone(), value));
                }
            }
        }
        Ok(())
    }

    fn capability(&mut self, pointer: &PointerReader<'_>, interface: usize) {
        // What is no capability teaches nothing.
        let Ok(hook) = pointer.get_capability() else { return };
        let place = self.places.iter().position(|known| *known == hook.get_ptr());
        if let Some(Some(id)) = place.and_then(|place| self.exports.get(place)) {
            self.attacker.has(*id, Some(interface));
        }
    }
}

/// Remembers the latest of each kind.
fn remember<K: PartialEq, V>(known: &mut Vec<(K, V)>, new: (K, V)) {
    let mut same = known.iter().enumerate().filter(|(_, (kind, _))| *kind == new.0);
    if let Some((first, _)) = same.next()
        && same.count() + 1 >= REMEMBERED
    {
        known.remove(first);
    }
    known.push(new);
}
