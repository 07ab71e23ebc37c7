//! Chooses what a hostile connection says next: mostly what makes sense, so that it gets far.

use std::rc::Rc;

use bulkhead_schema::{
    bulkhead_capnp::{bulkhead, sturdy_token},
    limits,
};
use capnp::traits::HasTypeId as _;

use super::{
    arguments::Manner,
    coverage::Outcome,
    dice::Dice,
    message::{Answer, Body, Descriptor, Embargo, FIELDS, Message, Pointer, Target},
    schema::Interface,
};

/// What it knows of a question that it asked.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) id: u32,
    /// The interface and the method that was called; `None` for the bootstrap.
    pub(super) method: Option<(usize, usize)>,
    /// Whether something of it was wrong on purpose.
    pub(super) wrong: bool,
    /// How it ended.
    pub(super) ended: Option<Outcome>,
}

/// A capability that the kernel has exported.
#[derive(Debug)]
pub(super) struct Export {
    pub(super) id: u32,
    pub(super) interface: Option<usize>,
    pub(super) references: u32,
}

/// One hostile connection's mind.
pub(super) struct Attacker {
    pub(super) dice: Dice,
    pub(super) interfaces: Rc<Vec<Interface>>,
    /// Whether it sends what the firewall does not even look into.
    pub(super) wild: bool,
    /// Whether something of the call that is being made is wrong on purpose.
    pub(super) wrong: bool,
    pub(super) questions: Vec<Question>,
    next_question: u32,
    pub(super) exports: Vec<Export>,
    /// Structs that came in results, with their types: handles, tokens.
    pub(super) structs: Vec<(u64, [u64; 4])>,
    /// Tokens that it was told of, and does not forget.
    told: Vec<[u64; 4]>,
    /// Numbers that came in results, with their names.
    pub(super) numbers: Vec<(String, u64)>,
    /// Questions that it was asked.
    pub(super) asked: Vec<u32>,
    /// Embargoes that it is to lift.
    pub(super) embargoes: Vec<u32>,
    promises: Vec<u32>,
    /// What it does before anything else.
    script: Vec<Message>,
}

impl Attacker {
    /// One that does what it likes from the beginning.
    pub(super) fn new(dice: Dice, interfaces: Rc<Vec<Interface>>) -> Self {
        let mut attacker = Self::unprepared(dice, interfaces);
        attacker.prepare();
        attacker
    }

    /// One that is led at first.
    pub(super) fn unprepared(mut dice: Dice, interfaces: Rc<Vec<Interface>>) -> Self {
        let wild = dice.once_in(3);
        Self {
            dice,
            interfaces,
            wild,
            wrong: false,
            questions: Vec::new(),
            next_question: 0,
            exports: Vec::new(),
            structs: Vec::new(),
            told: Vec::new(),
            numbers: Vec::new(),
            asked: Vec::new(),
            embargoes: Vec::new(),
            promises: Vec::new(),
            script: Vec::new(),
        }
    }

    /// Is told of tokens.
    pub(super) fn tell(&mut self, tokens: &[[u64; 4]]) {
        self.told = tokens.to_vec();
    }

    /// Structs of a type that came in results, or that it was told of.
    pub(super) fn known(&self, id: u64) -> Vec<[u64; 4]> {
        let learned = self.structs.iter().filter(|known| known.0 == id).map(|known| known.1);
        let told = if id == sturdy_token::Reader::TYPE_ID { self.told.as_slice() } else { &[] };
        learned.chain(told.iter().copied()).collect()
    }

    /// Knows of a reference to one of the kernel's exports.
    pub(super) fn has(&mut self, id: u32, interface: Option<usize>) {
        match self.exports.iter_mut().find(|export| export.id == id) {
            Some(known) => known.references += 1,
            None => self.exports.push(Export { id, interface, references: 1 }),
        }
    }

    /// What the kernel offers first.
    pub(super) fn first(&self) -> Option<usize> {
        self.interfaces.iter().position(|interface| interface.id == bulkhead::Client::TYPE_ID)
    }

    /// The usual beginning, most of the time.
    fn prepare(&mut self) {
        if self.dice.once_in(30) {
            return;
        }
        let question = self.ask(None, false);
        self.script.push(Message::Bootstrap(question));
        // Sessions cost much, so not every connection has some.
        for (name, percent) in [("hello", 97), ("openSession", 4), ("openSession", 1)] {
            if self.dice.below(100) < percent
                && let Some(method) = self.method_by_name(name)
            {
                let call = self.call_on(Target::Answer(0, Vec::new()), method, Manner::Careless);
                self.script.push(call);
            }
        }
        if self.wild && self.dice.once_in(3) {
            self.host();
        }
        self.script.reverse();
    }

    /// What only who keeps and calls what clients host can be hurt with: promises that are kept by one another, or by
    /// themselves, and are then used.
    fn host(&mut self) {
        let Some(method) = self.method_by_name("ping") else { return };
        let promises = 10 + self.dice.below(3)..14;
        let call = |attacker: &mut Self, descriptor: Descriptor| {
            let mut call = attacker.call_on(Target::Answer(0, Vec::new()), method, Manner::Honest);
            if let Message::Call(call) = &mut call {
                call.body.pointers = vec![(0, Pointer::Capability)];
                call.table = vec![descriptor];
            }
            attacker.script.push(call);
        };
        for promise in promises.clone() {
            call(self, Descriptor::SenderPromise(promise));
        }
        for promise in promises.clone() {
            let next = if promise + 1 < promises.end { promise + 1 } else { promises.start };
            let kept = match self.dice.below(4) {
                0 => Descriptor::SenderPromise(next),
                1 => Descriptor::ReceiverAnswer(self.questions.last().map_or(0, |asked| asked.id), vec![0]),
                _ => Descriptor::SenderPromise(promise),
            };
            self.script.push(Message::Resolve(promise, Some(kept)));
        }
        for promise in promises {
            call(self, Descriptor::SenderPromise(promise));
        }
    }

    fn method_by_name(&self, name: &str) -> Option<(usize, usize)> {
        let interface = self.first()?;
        let methods = &self.interfaces.get(interface)?.methods;
        Some((interface, methods.iter().position(|method| method.name == name)?))
    }

    pub(super) fn ask(&mut self, method: Option<(usize, usize)>, wrong: bool) -> u32 {
        let id = self.next_question;
        self.next_question = id.wrapping_add(1);
        self.questions.push(Question { id, method, wrong, ended: None });
        id
    }

    /// The next message.
    pub(super) fn next(&mut self) -> Message {
        if let Some(message) = self.script.pop() {
            return message;
        }
        let message = self.choose();
        if self.dice.once_in(if self.wild { 40 } else { 400 }) { self.damage(&message) } else { message }
    }

    fn choose(&mut self) -> Message {
        // Beyond these, a peer that keeps to the rules sends nothing.
        let legal = 80;
        let most = if self.wild { 130 } else { legal };
        match self.dice.below(most) {
            0 => Message::Bootstrap(self.ask(None, false)),
            1..50 => self.call(),
            50..68 => self.finish(),
            68..79 => self.release(),
            79 => self.once_in_a_while(),
            80..92 => self.answer(),
            92..104 => self.resolve(),
            104..112 => Message::Disembargo(self.target().0, self.embargo()),
            112..116 => Message::Unimplemented(self.dice.below(5), self.descriptor()),
            116..120 => self.for_third_parties(),
            _ => self.call(),
        }
    }

    fn once_in_a_while(&mut self) -> Message {
        if self.dice.once_in(20) {
            return Message::Abort;
        }
        let (id, count) = (self.dice.below(20), self.dice.word());
        match self.dice.below(12) {
            0 => Message::Release(id, u32::MAX),
            1 => Message::Release(u32::MAX, 1),
            2 => Message::Release(id, u32::try_from(count >> 40).unwrap_or(1)),
            // Forgets what was asked, so that a number is used twice.
            3 => {
                self.next_question = self.next_question.saturating_sub(self.dice.below(4));
                self.call()
            }
            4 => {
                self.next_question = u32::MAX - 5;
                self.call()
            }
            _ => Message::Finish(id, false),
        }
    }

    fn finish(&mut self) -> Message {
        let release = self.dice.once_in(2);
        if self.questions.is_empty() {
            return Message::Finish(self.dice.below(10), release);
        }
        let at = self.dice.place(self.questions.len());
        let Some(question) = self.questions.get(at) else { return Message::Finish(0, release) };
        let id = question.id;
        // What is finished is named again now and then, and seldom something that everything hangs on.
        if id == 0 && !self.dice.once_in(8) {
            return self.call();
        }
        if !self.dice.once_in(10) {
            self.questions.swap_remove(at);
        }
        Message::Finish(id, release)
    }

    fn release(&mut self) -> Message {
        if self.exports.is_empty() {
            return self.call();
        }
        let at = self.dice.place(self.exports.len());
        let Some(export) = self.exports.get_mut(at) else { return Message::Release(0, 1) };
        let count = 1 + self.dice.below(export.references);
        export.references = export.references.saturating_sub(count);
        let id = export.id;
        if export.references == 0 && !self.dice.once_in(20) {
            self.exports.swap_remove(at);
        }
        Message::Release(id, count)
    }

    fn answer(&mut self) -> Message {
        let id = match self.dice.one(&self.asked) {
            Some(id) => *id,
            None => self.dice.below(4),
        };
        if !self.dice.once_in(10) {
            self.asked.retain(|asked| *asked != id);
        }
        let answer = match self.dice.below(9) {
            0 => Answer::Exception,
            1 => Answer::Canceled,
            2 => Answer::Elsewhere,
            3 => Answer::Other(self.question()),
            _ => {
                let table = self.table();
                Answer::Results(self.capabilities(), table)
            }
        };
        Message::Return(id, self.dice.once_in(2), self.dice.once_in(4), answer)
    }

    fn resolve(&mut self) -> Message {
        let promise = match self.dice.one(&self.promises) {
            Some(promise) => *promise,
            None => self.dice.below(14),
        };
        if !self.dice.once_in(15) {
            self.promises.retain(|known| *known != promise);
        }
        let to = (!self.dice.once_in(5)).then(|| match self.dice.below(4) {
            // A promise that is kept by itself.
            0 => Descriptor::SenderPromise(promise),
            _ => self.descriptor(),
        });
        Message::Resolve(promise, to)
    }

    fn embargo(&mut self) -> Embargo {
        let known = self.embargoes.pop();
        match (known, self.dice.below(6)) {
            (Some(id), 0..5) => Embargo::ReceiverLoopback(id),
            (_, 0) => Embargo::Accept,
            (_, 1) => Embargo::Provide(self.question()),
            (_, 2) => Embargo::ReceiverLoopback(self.dice.below(4)),
            _ => Embargo::SenderLoopback(self.dice.below(4)),
        }
    }

    fn for_third_parties(&mut self) -> Message {
        let question = self.ask(None, false);
        match self.dice.below(3) {
            0 => Message::Provide(question, self.target().0),
            1 => Message::Accept(question, self.dice.once_in(2)),
            _ => Message::Join(question, self.target().0),
        }
    }

    fn question(&mut self) -> u32 {
        match self.dice.one(&self.questions) {
            Some(question) if !self.dice.clone().once_in(40) => question.id,
            Some(_) | None => self.dice.below(8),
        }
    }

    /// A capability to talk to, and its interface where that is known.
    fn target(&mut self) -> (Target, Option<usize>) {
        let chance = self.dice.below(100);
        if chance < 55
            && let Some(export) = self.dice.one(&self.exports)
        {
            return (Target::Import(export.id), export.interface);
        }
        if chance < 96
            && let Some((question, path, interface)) = self.promised()
        {
            return (Target::Answer(question, path), interface);
        }
        let path = (0..self.dice.below(4)).map(|_| self.field()).collect();
        match self.dice.below(2) {
            0 => (Target::Import(self.dice.below(6)), None),
            _ => (Target::Answer(self.question(), path), None),
        }
    }

    fn field(&mut self) -> u16 {
        if self.dice.once_in(30) { u16::MAX } else { u16::try_from(self.dice.below(3)).unwrap_or(0) }
    }

    /// A capability in an answer that may be still to come.
    fn promised(&mut self) -> Option<(u32, Vec<u16>, Option<usize>)> {
        let mut candidates = Vec::new();
        for question in self.questions.iter().rev().take(12) {
            match question.method {
                None => candidates.push((question.id, Vec::new(), self.first())),
                Some((interface, method)) => {
                    let found = self.interfaces.get(interface).and_then(|known| known.methods.get(method));
                    for (path, interface) in found.iter().flat_map(|found| &found.capabilities) {
                        candidates.push((question.id, path.clone(), Some(*interface)));
                    }
                }
            }
        }
        self.dice.one(&candidates).cloned()
    }

    fn call(&mut self) -> Message {
        let (target, interface) = self.target();
        let interfaces = Rc::clone(&self.interfaces);
        let interface = match interface {
            Some(interface) if !self.dice.once_in(30) => interface,
            Some(_) | None => self.dice.place(interfaces.len()),
        };
        let methods = interfaces.get(interface).map_or(0, |interface| interface.methods.len());
        // What ends everything, and what costs much, is called less often than what is there to call meanwhile.
        let seldom = |method: usize| {
            let known = interfaces.get(interface).and_then(|interface| interface.methods.get(method));
            match known.map(|known| known.name.as_str()) {
                Some("openSession" | "loadImage") => 30,
                Some("close") => 4,
                Some(_) | None => 1,
            }
        };
        let mut method = self.dice.place(methods);
        while methods > 1 && !self.dice.once_in(seldom(method)) {
            method = self.dice.place(methods);
        }
        self.call_on(target, (interface, method), Manner::Careless)
    }

    pub(super) fn descriptor(&mut self) -> Descriptor {
        // What clients may send, most of the time.
        let most = if self.wild { 12 } else { 6 };
        let export = |attacker: &mut Self| match attacker.dice.one(&attacker.exports) {
            Some(export) => export.id,
            None => attacker.dice.below(4),
        };
        match self.dice.below(most) {
            0 => Descriptor::None,
            1 | 2 => Descriptor::ReceiverHosted(export(self)),
            3..6 => match self.promised() {
                Some((question, path, _)) => Descriptor::ReceiverAnswer(question, path),
                None => Descriptor::ReceiverAnswer(self.question(), vec![self.field()]),
            },
            6..8 => Descriptor::SenderHosted(self.dice.below(4)),
            8..11 => {
                let promise = 10 + self.dice.below(4);
                self.promises.push(promise);
                Descriptor::SenderPromise(promise)
            }
            _ => Descriptor::ThirdParty(self.dice.below(4)),
        }
    }

    pub(super) fn table(&mut self) -> Vec<Descriptor> {
        let count = match self.dice.below(100) {
            0 => limits::CAPABILITIES_PER_MESSAGE_MAX + 1,
            _ => self.dice.below(3),
        };
        (0..count).map(|_| self.descriptor()).collect()
    }

    /// A struct with capabilities where a method of any kind may look for some.
    pub(super) fn capabilities(&mut self) -> Body {
        let count = u16::try_from(self.dice.below(u32::from(FIELDS / 2))).unwrap_or(0);
        Body { data: Vec::new(), pointers: (0..count).map(|at| (at, Pointer::Capability)).collect() }
    }

    /// The message with some of it changed, cut off or made up.
    fn damage(&mut self, message: &Message) -> Message {
        let mut bytes = message.encode();
        match self.dice.below(6) {
            0 => bytes.truncate(self.dice.place(bytes.len())),
            1 => bytes = (0..8 * self.dice.below(40)).map(|_| self.dice.word().to_le_bytes()[0]).collect(),
            2 => {
                // The number of segments, or the length of the first.
                let (at, value) = (self.dice.place(8), self.dice.word().to_le_bytes()[0]);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = value);
            }
            _ => {
                for _ in 0..=self.dice.below(4) {
                    let (at, bit) = (self.dice.place(bytes.len()), self.dice.below(8));
                    bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
                }
            }
        }
        Message::Bytes(bytes)
    }
}
