//! Arguments that fit, as far as the schema and what the kernel answered before can tell, and arguments that do not.

use std::rc::Rc;

use bulkhead_schema::limits;

use super::{
    attacker::Attacker,
    message::{Body, Call, Descriptor, Message, Pointer, Results, Target},
    offer,
    schema::{Field, Place},
};

/// How arguments are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// To fit.
    Honest,
    /// To fit mostly.
    Careless,
    /// Not to fit.
    Hostile,
}

impl Attacker {
    /// A call of a method of an interface, as the target is thought to have it.
    pub(super) fn call_on(&mut self, target: Target, method: (usize, usize), manner: Manner) -> Message {
        let interfaces = Rc::clone(&self.interfaces);
        let known = interfaces.get(method.0).and_then(|interface| interface.methods.get(method.1));
        let Some(known) = known else { return Message::Bootstrap(self.ask(None, false)) };
        self.wrong = manner == Manner::Hostile;
        let (mut number, mut id) = (known.number, known.interface);
        let mut table = Vec::new();
        let mut body = self.body(&known.parameters, &mut table, manner);
        if known.name == "offerImage" && manner == Manner::Honest {
            body.data = vec![(64, 0, offer::IMAGE.len() as u64)];
        }
        let mut results = Results::Caller;
        if manner == Manner::Careless {
            if self.dice.once_in(100) {
                number = u16::try_from(self.dice.below(65_536)).unwrap_or(0);
                self.wrong = true;
            }
            if self.dice.once_in(200) {
                id = self.dice.word();
                self.wrong = true;
            }
            if self.dice.once_in(10) || (self.wild && self.dice.once_in(2)) {
                table.extend(self.table());
                body.pointers.extend(self.capabilities().pointers);
                self.wrong = true;
            }
            results = match self.dice.below(if self.wild { 40 } else { 1000 }) {
                0 => Results::Yourself,
                1 => Results::ThirdParty,
                _ => Results::Caller,
            };
        }
        let wrong = self.wrong;
        let question = self.ask(Some(method), wrong);
        Message::Call(Call { question, target, interface: id, method: number, body, table, results })
    }

    fn body(&mut self, fields: &[Field], table: &mut Vec<Descriptor>, manner: Manner) -> Body {
        let mut body = Body::default();
        for field in fields {
            let pointer = match &field.place {
                Place::Bits(bits, offset) => {
                    body.data.push((*bits, *offset, self.number(&field.name, manner)));
                    continue;
                }
                Place::Bytes(place) | Place::Pointer(place) => (*place, Pointer::Bytes(self.bytes(manner))),
                Place::Struct(place, id, fields) => {
                    (*place, Pointer::Struct(self.fitting(*id, fields, table, manner)))
                }
                Place::Structs(place, id, fields) => {
                    let count = if manner == Manner::Hostile { 70_000 } else { self.dice.below(3) };
                    // So many words in all that the kernel takes the message.
                    let count = count.min(if self.dice.once_in(2) { 4 } else { 600 });
                    let fitting = (0..count).map(|_| self.fitting(*id, fields, table, manner));
                    (*place, Pointer::Structs(fitting.collect()))
                }
                Place::Capability(place, interface) => {
                    let descriptor = self.argument(*interface, manner);
                    table.push(descriptor);
                    (*place, Pointer::Capability)
                }
            };
            let left_out = manner == Manner::Careless && self.dice.once_in(60);
            self.wrong |= left_out;
            if !left_out {
                body.pointers.push(pointer);
            }
        }
        body
    }

    /// A struct of a type: one that came in results, or a new one.
    fn fitting(&mut self, id: u64, fields: &[Field], table: &mut Vec<Descriptor>, manner: Manner) -> Body {
        let known = self.known(id);
        let Some(known) = self.latest(&known).copied() else {
            // What is left out is as usual.
            let usual = manner == Manner::Honest && !self.dice.once_in(8);
            return if usual { Body::default() } else { self.body(fields, table, manner) };
        };
        if manner != Manner::Honest && self.dice.once_in(3) {
            return self.body(fields, table, manner);
        }
        let mut words = known;
        let damaged = match manner {
            Manner::Honest => false,
            Manner::Careless => self.dice.once_in(8),
            Manner::Hostile => true,
        };
        self.wrong |= damaged;
        if damaged && let Some(word) = words.first_mut() {
            *word ^= 1 << self.dice.below(64);
        }
        Body { data: (0..).zip(words).map(|(at, word)| (64, at, word)).collect(), pointers: Vec::new() }
    }

    /// One of these, and the last one more often than others.
    pub(super) fn latest<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if self.dice.once_in(2) { of.last() } else { self.dice.one(of) }
    }

    /// A capability to be passed where one of an interface is asked for.
    fn argument(&mut self, interface: usize, manner: Manner) -> Descriptor {
        let interfaces = Rc::clone(&self.interfaces);
        let fits = |known: Option<usize>| {
            let known = known.and_then(|known| interfaces.get(known));
            known.is_some_and(|known| known.is.contains(&interface))
        };
        let wanted = match manner {
            Manner::Honest => true,
            Manner::Careless => self.dice.once_in(2),
            Manner::Hostile => false,
        };
        if wanted || manner == Manner::Hostile {
            let exports = self.exports.iter().filter(|export| fits(export.interface) == wanted);
            let exports: Vec<u32> = exports.map(|export| export.id).collect();
            let found =
                if wanted { self.latest(&exports).copied() } else { self.dice.one(&exports).copied() };
            return match found {
                Some(id) if wanted || self.dice.once_in(2) => Descriptor::ReceiverHosted(id),
                Some(_) | None => Descriptor::None,
            };
        }
        self.wrong = true;
        self.descriptor()
    }

    /// A value that a field of this name may have, or none such.
    fn number(&mut self, name: &str, manner: Manner) -> u64 {
        let wrong = match manner {
            Manner::Honest => false,
            Manner::Careless => self.dice.once_in(25),
            // What waits is to come back.
            Manner::Hostile => name != "timeoutMs",
        };
        if wrong {
            self.wrong = true;
            return match self.dice.below(4) {
                0 | 1 => u64::MAX,
                2 => 1 << (16 + self.dice.below(48)),
                _ => self.dice.word() | 1 << 20,
            };
        }
        match name {
            "version" => return u64::from(limits::PROTOCOL_VERSION),
            "device" => return 0,
            "timeoutMs" => return u64::from(self.dice.below(3)),
            _ => {}
        }
        let known: Vec<u64> =
            self.numbers.iter().filter(|known| known.0 == name).map(|known| known.1).collect();
        if self.dice.once_in(2)
            && let Some(value) = self.latest(&known)
        {
            return *value;
        }
        match name {
            "bytes" | "length" => [1, 64, 512, 4096, 100_000].get(self.dice.place(5)).copied().unwrap_or(1),
            // Where there is a choice, 0 mostly leaves it to the kernel.
            _ if self.dice.once_in(2) => 0,
            _ => u64::from(self.dice.below(4)),
        }
    }

    fn bytes(&mut self, manner: Manner) -> Vec<u8> {
        let choice = match manner {
            Manner::Honest => 3,
            Manner::Careless => self.dice.below(60),
            Manner::Hostile => self.dice.below(3),
        };
        self.wrong |= choice < 3;
        let length = match choice {
            0 => 0,
            1 => limits::NAME_BYTES_MAX + 1,
            2 => 4000,
            _ => 1 + self.dice.place(20),
        };
        if manner == Manner::Hostile || (manner == Manner::Careless && self.dice.once_in(30)) {
            return (0..length).map(|_| self.dice.word().to_le_bytes()[0]).collect();
        }
        vec![b'f'; length]
    }
}
