//! A client that writes its messages itself, one after the other, and may leave answers unread.

use std::{
    io::{self, Write as _},
    os::unix::net::UnixStream,
    path::Path,
};

use bulkhead_schema::{bulkhead_capnp::bulkhead, limits};
use capnp::{message::ReaderOptions, serialize, traits::HasTypeId as _};

use crate::fuzz::{
    message::{Body, Call, Message, Pointer, Results, Target},
    schema::{self, Interface},
};

/// Such a client.
pub struct Raw {
    /// Its connection.
    pub stream: UnixStream,
    interfaces: Vec<Interface>,
    question: u32,
}

impl Raw {
    /// Connects and says hello.
    ///
    /// # Panics
    /// Where the kernel does not let it in.
    #[must_use]
    pub fn connect(socket: &Path, name: &str) -> Self {
        let stream = UnixStream::connect(socket).expect("the kernel listens");
        let mut client = Self { stream, interfaces: schema::interfaces(), question: 0 };
        client.send(&Message::Bootstrap(0)).expect("the kernel reads");
        client.receive();
        let version = u64::from(limits::PROTOCOL_VERSION);
        let hello = Body { data: vec![(32, 0, version)], pointers: named(name) };
        client.call(Target::Answer(0, Vec::new()), bulkhead::Client::TYPE_ID, "hello", hello);
        client.receive();
        client
    }

    /// A call of a method by its name, on an interface that has it, to be sent: the question.
    ///
    /// # Panics
    /// Where there is no such method.
    pub fn ask(&mut self, target: Target, interface: u64, method: &str, body: Body) -> (u32, Message) {
        let interface = self.interfaces.iter().find(|known| known.id == interface).expect("an interface");
        let method = interface.methods.iter().find(|known| known.name == method).expect("a method of it");
        let (interface, method) = (method.interface, method.number);
        self.question += 1;
        let (question, table, results) = (self.question, Vec::new(), Results::Caller);
        (question, Message::Call(Call { question, target, interface, method, body, table, results }))
    }

    /// The same, sent.
    ///
    /// # Panics
    /// Where there is no such method, or the kernel has hung up.
    pub fn call(&mut self, target: Target, interface: u64, method: &str, body: Body) -> u32 {
        let (question, call) = self.ask(target, interface, method, body);
        self.send(&call).expect("the kernel reads");
        question
    }

    /// Asks for a session: the question, and how the session is found in the answer to it.
    ///
    /// # Panics
    /// Where the kernel has hung up.
    pub fn open_session(&mut self, name: &str) -> (u32, Vec<u16>) {
        let opening = self.interfaces.iter().flat_map(|interface| &interface.methods);
        let mut opening = opening.filter(|method| method.name == "openSession");
        let path = opening.find_map(|method| method.capabilities.first()).map(|(path, _)| path.clone());
        let body = Body { data: vec![(32, 0, 0)], pointers: named(name) };
        let target = Target::Answer(0, Vec::new());
        let question = self.call(target, bulkhead::Client::TYPE_ID, "openSession", body);
        (question, path.expect("it answers a session"))
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Where the kernel has hung up, or does not read for as long as the connection waits.
    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        self.stream.write_all(&message.encode())
    }

    /// Reads one message, whatever it is.
    ///
    /// # Panics
    /// Where the kernel has hung up.
    pub fn receive(&mut self) {
        serialize::read_message(&mut self.stream, ReaderOptions::new()).expect("the kernel answers");
    }
}

/// A name as the only pointer of parameters.
fn named(name: &str) -> Vec<(u16, Pointer)> {
    vec![(0, Pointer::Bytes(name.as_bytes().to_vec()))]
}
