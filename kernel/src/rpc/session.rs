//! The RPC face of a session that can load code.

use std::rc::Rc;

use bulkhead_schema::{
    Error, ErrorCode, Stray,
    bulkhead_capnp::{gpu_copy_session, gpu_session},
};

use crate::{
    rpc::{
        connection::Connection,
        copy_session::CopyServer,
        image::Image,
        program::{read_entries, write_program},
        served::Served,
    },
    session::{OpenSession, Terms, reference::Facet},
    task::{counted, detached},
    transport::descriptors::Token,
};

/// A session, as its client holds it.
pub(crate) struct SessionServer {
    copying: Rc<CopyServer>,
}

impl SessionServer {
    pub(crate) fn new(open: OpenSession, connection: Rc<Connection>) -> Self {
        Self { copying: Rc::new(CopyServer::new(open, connection)) }
    }

    fn offer(&self, bytes: u64) -> Result<Token, Error> {
        let session = self.copying.session();
        let (parcel, offer) = session.make_offer(bytes)?;
        let token = self.copying.connection.give(parcel)?;
        session.offer(token, offer);
        Ok(token)
    }
}

/// What a session that loads no code can do, this one can too, in the same way.
macro_rules! copying {
    ($($method:ident($params:ident) -> $results:ident;)*) => {
        impl gpu_copy_session::Server for SessionServer {
            $(async fn $method(
                self: Rc<Self>,
                params: gpu_copy_session::$params,
                results: gpu_copy_session::$results,
            ) -> Result<(), capnp::Error> {
                Rc::clone(&self.copying).$method(params, results).await
            })*
        }
    };
}

copying! {
    allocate(AllocateParams) -> AllocateResults;
    allocate_host(AllocateHostParams) -> AllocateHostResults;
    fence(FenceParams) -> FenceResults;
    signal(SignalParams) -> SignalResults;
    memory(MemoryParams) -> MemoryResults;
    close(CloseParams) -> CloseResults;
    accept(AcceptParams) -> AcceptResults;
    peer(PeerParams) -> PeerResults;
    granted(GrantedParams) -> GrantedResults;
    lost(LostParams) -> LostResults;
    ledger(LedgerParams) -> LedgerResults;
    reserve(ReserveParams) -> ReserveResults;
    create(CreateParams) -> CreateResults;
    reserve_addresses(ReserveAddressesParams) -> ReserveAddressesResults;
    release_addresses(ReleaseAddressesParams) -> ReleaseAddressesResults;
    claim_module(ClaimModuleParams) -> ClaimModuleResults;
    accept_gates(AcceptGatesParams) -> AcceptGatesResults;
}

impl gpu_session::Server for SessionServer {
    async fn offer_image(
        self: Rc<Self>,
        params: gpu_session::OfferImageParams,
        mut results: gpu_session::OfferImageResults,
    ) -> Result<(), capnp::Error> {
        let offered = self.offer(params.get()?.get_bytes());
        let result = results.get().init_result();
        match offered {
            Ok(token) => token.write(result.init_ok()),
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn load_image(
        self: Rc<Self>,
        params: gpu_session::LoadImageParams,
        mut results: gpu_session::LoadImageResults,
    ) -> Result<(), capnp::Error> {
        let token = Token::read(params.get()?.get_image()?);
        let stray = Stray::of(params.get()?.get_check());
        drop(params);
        let (session, kernel) = (self.copying.session(), Rc::clone(&self.copying.connection.kernel));
        let patience = session.limits.load();
        let loaded =
            detached(patience, async move { session.load_image(token, stray, &kernel.compiler).await }).await;
        let result = results.get().init_result();
        match loaded {
            Ok((image, data)) => {
                let mut loaded = result.init_ok();
                data.write(loaded.reborrow().init_data());
                let image = Image::new(image);
                image.write(loaded.reborrow().init_entries(image.count()));
                loaded.set_by_name(image.is_by_name());
                loaded.set_module(capnp_rpc::new_client(image));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn ask_driver(
        self: Rc<Self>,
        params: gpu_session::AskDriverParams,
        mut results: gpu_session::AskDriverResults,
    ) -> Result<(), capnp::Error> {
        let (about, words) = {
            let params = params.get()?;
            let list = params.get_words()?;
            let words: Vec<u64> = list.iter().take(bulkhead_schema::limits::QUESTION_WORDS_MAX).collect();
            ((bulkhead_schema::Handle::read(params.get_entry()?), params.get_question()), words)
        };
        drop(params);
        let session = self.copying.session();
        let asked = match about {
            (entry, Ok(question)) => {
                let party = Rc::clone(&session.party);
                counted(&party, session.limits.answer(), session.ask_driver(entry, question, words)).await
            }
            (_, Err(_)) => Err(Error::new(ErrorCode::InvalidArgument, "that is no question of this version")),
        };
        let result = results.get().init_result();
        match asked {
            Ok(words) => {
                let count = u32::try_from(words.len()).unwrap_or(0);
                let mut list = result.init_ok().init_words(count);
                (0..count).zip(&words).for_each(|(at, word)| list.set(at, *word));
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn output(
        self: Rc<Self>,
        params: gpu_session::OutputParams,
        mut results: gpu_session::OutputResults,
    ) -> Result<(), capnp::Error> {
        drop(params);
        let session = self.copying.session();
        let patience = session.limits.answer();
        let written = detached(patience, async move { Ok(session.output().await) }).await;
        let result = results.get().init_result();
        match written {
            Ok(written) => {
                let mut output = result.init_ok();
                output.set_out(&written.out);
                output.set_err(&written.err);
                output.set_more(written.more);
            }
            Err(error) => error.write(result.init_error()),
        }
        Ok(())
    }

    async fn derive(
        self: Rc<Self>,
        params: gpu_session::DeriveParams,
        mut results: gpu_session::DeriveResults,
    ) -> Result<(), capnp::Error> {
        let params = params.get()?;
        let terms = Terms::read(params.get_terms()?);
        let derived = read_entries(params.get_entries()?).and_then(|entries| {
            let terms = terms?;
            let (held, share) = self.copying.session().derive(&entries, terms)?;
            Ok(Served::new(held, Facet::Program(Rc::new(share)), &self.copying.connection))
        });
        write_program(derived, results.get().init_result());
        Ok(())
    }
}
