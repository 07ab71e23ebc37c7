//! Messages of `rpc.capnp`, honest and not, as plain values: what a failing connection sent can be printed.

use bulkhead_schema::bulkhead_capnp::bulkhead;
use capnp::{
    message, private,
    private::{capability::ClientHook, layout::StructBuilder},
    serialize, struct_list,
    traits::{FromPointerBuilder as _, HasStructSize as _, ImbueMut as _},
};
use capnp_rpc::rpc_capnp::{
    call, cap_descriptor, disembargo, message as rpc, message_target, payload, promised_answer, return_,
};

use super::untyped::{NewStruct, Untyped};

/// Words and pointers of every struct that is sent as parameters: more than any method has.
pub const FIELDS: u16 = 8;

/// A struct of no type.
#[derive(Debug, Clone, Default)]
pub struct Body {
    /// Data, at multiples of a number of bits.
    pub data: Vec<(u32, u32, u64)>,
    /// Pointers.
    pub pointers: Vec<(u16, Pointer)>,
}

/// A pointer in a struct of no type.
#[derive(Debug, Clone)]
pub enum Pointer {
    /// Text, which need be none.
    Bytes(Vec<u8>),
    /// A struct.
    Struct(Body),
    /// A list of structs.
    Structs(Vec<Body>),
    /// The next capability of the table.
    Capability,
}

/// What a capability in a message claims to be.
#[derive(Debug, Clone)]
pub enum Descriptor {
    /// None.
    None,
    /// The client's own.
    SenderHosted(u32),
    /// A promise of the client's.
    SenderPromise(u32),
    /// The kernel's.
    ReceiverHosted(u32),
    /// In an answer of the kernel's.
    ReceiverAnswer(u32, Vec<u16>),
    /// Somebody else's.
    ThirdParty(u32),
}

/// Whom a message is for.
#[derive(Debug, Clone)]
pub enum Target {
    /// A capability.
    Import(u32),
    /// A capability in the answer to a question.
    Answer(u32, Vec<u16>),
}

/// Where results are to go.
#[derive(Debug, Clone, Copy)]
pub enum Results {
    /// To who asked.
    Caller,
    /// Nowhere.
    Yourself,
    /// To somebody else.
    ThirdParty,
}

/// A call.
#[derive(Debug, Clone)]
pub struct Call {
    /// Names its answer.
    pub question: u32,
    /// Of which capability.
    pub target: Target,
    /// Of which interface.
    pub interface: u64,
    /// Of which method.
    pub method: u16,
    /// Parameters.
    pub body: Body,
    /// Capabilities in them.
    pub table: Vec<Descriptor>,
    /// Who gets the results.
    pub results: Results,
}

/// An answer to a call of the kernel's, which makes none.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Results.
    Results(Body, Vec<Descriptor>),
    /// A failure.
    Exception,
    /// Given up.
    Canceled,
    /// They went elsewhere.
    Elsewhere,
    /// They are those of another question.
    Other(u32),
}

/// What lifts an embargo.
#[derive(Debug, Clone, Copy)]
pub enum Embargo {
    /// Asks for it.
    SenderLoopback(u32),
    /// Answers.
    ReceiverLoopback(u32),
    /// Of a provision.
    Accept,
    /// Of a question.
    Provide(u32),
}

/// One message.
#[derive(Debug, Clone)]
pub enum Message {
    /// Asks for the first capability.
    Bootstrap(u32),
    /// Calls a method.
    Call(Call),
    /// Gives an answer up: the question, and whether the answer's capabilities too.
    Finish(u32, bool),
    /// Gives references to a capability back.
    Release(u32, u32),
    /// Answers a question, releasing the capabilities in its parameters, needing no finish.
    Return(u32, bool, bool, Answer),
    /// Says what a promise has become; without a capability, that it has failed.
    Resolve(u32, Option<Descriptor>),
    /// Lifts an embargo.
    Disembargo(Target, Embargo),
    /// Ends it all.
    Abort,
    /// Gives a resolution back.
    Unimplemented(u32, Descriptor),
    /// For a third party.
    Provide(u32, Target),
    /// From a third party.
    Accept(u32, bool),
    /// The same capability by two ways.
    Join(u32, Target),
    /// A message that was damaged, or none at all.
    Bytes(Vec<u8>),
}

impl Message {
    /// As it goes over the wire.
    ///
    /// # Panics
    /// Where it cannot be built, which the caller would be to blame for.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        if let Self::Bytes(bytes) = self {
            return bytes.clone();
        }
        let mut message = message::Builder::new_default();
        self.build(message.init_root()).expect("a message can be built");
        serialize::write_message_to_words(&message)
    }

    fn build(&self, root: rpc::Builder<'_>) -> capnp::Result<()> {
        match self {
            Self::Bootstrap(question) => root.init_bootstrap().set_question_id(*question),
            Self::Call(call) => call.build(root.init_call())?,
            Self::Finish(question, release) => {
                let mut finish = root.init_finish();
                finish.set_question_id(*question);
                finish.set_release_result_caps(*release);
            }
            Self::Release(id, count) => {
                let mut release = root.init_release();
                release.set_id(*id);
                release.set_reference_count(*count);
            }
            Self::Return(id, release, final_, answer) => {
                let mut returned = root.init_return();
                returned.set_answer_id(*id);
                returned.set_release_param_caps(*release);
                returned.set_no_finish_needed(*final_);
                answer.build(returned)?;
            }
            Self::Resolve(promise, to) => {
                let mut resolve = root.init_resolve();
                resolve.set_promise_id(*promise);
                match to {
                    Some(descriptor) => descriptor.build(resolve.init_cap()),
                    None => resolve.init_exception().set_reason("it is broken"),
                }
            }
            Self::Disembargo(target, embargo) => {
                let mut disembargo = root.init_disembargo();
                target.build(disembargo.reborrow().init_target());
                embargo.build(disembargo.get_context());
            }
            Self::Abort => root.init_abort().set_reason("that is all"),
            Self::Unimplemented(promise, descriptor) => {
                let mut resolve = root.init_unimplemented().init_resolve();
                resolve.set_promise_id(*promise);
                descriptor.build(resolve.init_cap());
            }
            Self::Provide(question, target) => {
                let mut provide = root.init_provide();
                provide.set_question_id(*question);
                target.build(provide.init_target());
            }
            Self::Accept(question, embargo) => {
                let mut accept = root.init_accept();
                accept.set_question_id(*question);
                accept.set_embargo(*embargo);
            }
            Self::Join(question, target) => {
                let mut join = root.init_join();
                join.set_question_id(*question);
                target.build(join.init_target());
            }
            Self::Bytes(_) => {}
        }
        Ok(())
    }
}

impl Call {
    fn build(&self, mut call: call::Builder<'_>) -> capnp::Result<()> {
        call.set_question_id(self.question);
        call.set_interface_id(self.interface);
        call.set_method_id(self.method);
        self.target.build(call.reborrow().init_target());
        build_payload(call.reborrow().init_params(), &self.body, &self.table);
        let mut results = call.get_send_results_to();
        match self.results {
            Results::Caller => results.set_caller(()),
            Results::Yourself => results.set_yourself(()),
            Results::ThirdParty => drop(results.init_third_party()),
        }
        Ok(())
    }
}

impl Answer {
    fn build(&self, mut returned: return_::Builder<'_>) -> capnp::Result<()> {
        match self {
            Self::Results(body, table) => build_payload(returned.init_results(), body, table),
            Self::Exception => returned.init_exception().set_reason("it failed"),
            Self::Canceled => returned.set_canceled(()),
            Self::Elsewhere => returned.set_results_sent_elsewhere(()),
            Self::Other(question) => returned.set_take_from_other_question(*question),
        }
        Ok(())
    }
}

impl Embargo {
    fn build(self, mut context: disembargo::context::Builder<'_>) {
        match self {
            Self::SenderLoopback(id) => context.set_sender_loopback(id),
            Self::ReceiverLoopback(id) => context.set_receiver_loopback(id),
            Self::Accept => context.set_accept(()),
            Self::Provide(question) => context.set_provide(question),
        }
    }
}

impl Target {
    fn build(&self, mut target: message_target::Builder<'_>) {
        match self {
            Self::Import(id) => target.set_imported_cap(*id),
            Self::Answer(question, path) => build_answer(target.init_promised_answer(), *question, path),
        }
    }
}

impl Descriptor {
    fn build(&self, mut descriptor: cap_descriptor::Builder<'_>) {
        match self {
            Self::None => descriptor.set_none(()),
            Self::SenderHosted(id) => descriptor.set_sender_hosted(*id),
            Self::SenderPromise(id) => descriptor.set_sender_promise(*id),
            Self::ReceiverHosted(id) => descriptor.set_receiver_hosted(*id),
            Self::ReceiverAnswer(question, path) => {
                build_answer(descriptor.init_receiver_answer(), *question, path);
            }
            Self::ThirdParty(id) => descriptor.init_third_party_hosted().set_vine_id(*id),
        }
    }
}

fn build_answer(mut answer: promised_answer::Builder<'_>, question: u32, path: &[u16]) {
    answer.set_question_id(question);
    let mut transform = answer.init_transform(u32::try_from(path.len()).unwrap_or(0));
    for (at, field) in (0..).zip(path) {
        transform.reborrow().get(at).set_get_pointer_field(*field);
    }
}

fn build_payload(payload: payload::Builder<'_>, body: &Body, table: &[Descriptor]) {
    // Their place in this table is what goes over the wire.
    let mut capabilities = private::layout::CapTable::new();
    let mut payload = payload;
    let mut descriptors = payload.reborrow().init_cap_table(u32::try_from(table.len()).unwrap_or(0));
    for (at, descriptor) in (0..).zip(table) {
        descriptor.build(descriptors.reborrow().get(at));
    }
    let mut content = payload.reborrow().get_content();
    content.imbue_mut(&mut capabilities);
    body.fill(content.init_as::<NewStruct<'_>>().0);
}

impl Body {
    fn fill(&self, mut builder: StructBuilder<'_>) {
        for (bits, offset, value) in &self.data {
            if (offset + 1) * bits > u32::from(FIELDS) * 64 {
                continue;
            }
            let [first, second, third, fourth, ..] = value.to_le_bytes();
            let offset = *offset as usize;
            match bits {
                1 => builder.set_bool_field(offset, first % 2 == 1),
                8 => builder.set_data_field(offset, first),
                16 => builder.set_data_field(offset, u16::from_le_bytes([first, second])),
                32 => builder.set_data_field(offset, u32::from_le_bytes([first, second, third, fourth])),
                _ => builder.set_data_field(offset, *value),
            }
        }
        for (place, pointer) in &self.pointers {
            if *place >= FIELDS {
                continue;
            }
            let mut field = builder.reborrow().get_pointer_field(usize::from(*place));
            match pointer {
                Pointer::Bytes(bytes) => field.set_text(capnp::text::Reader(bytes)),
                Pointer::Struct(body) => body.fill(field.init_struct(NewStruct::STRUCT_SIZE)),
                Pointer::Structs(bodies) => {
                    let count = u32::try_from(bodies.len()).unwrap_or(0);
                    let mut list = struct_list::Builder::<'_, Untyped>::init_pointer(field, count);
                    for (at, body) in (0..count).zip(bodies) {
                        body.fill(list.reborrow().get(at).0);
                    }
                }
                Pointer::Capability => field.set_capability(nobody()),
            }
        }
    }
}

/// A capability to be counted; what it is, its descriptor says.
pub(super) fn nobody() -> Box<dyn ClientHook> {
    struct Nobody;
    impl bulkhead::Server for Nobody {}
    let client: bulkhead::Client = capnp_rpc::new_client(Nobody);
    client.client.hook
}
