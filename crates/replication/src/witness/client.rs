//! The site's side: a witness that is asked, and the client of the built-in one.

use super::{
    group::WitnessRequest,
    ledger::{WitnessAnswer, WitnessView},
    message::{ANSWER_BYTES_MAX, MessageFault, MessageKind, decode_answer, decode_list, encode_request},
    session::{WitnessSecret, WitnessSession, WitnessSessionEnd},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use world::{Address, LocalFuture, Moment, Network, World, with_deadline};

/// Port of a witness.
pub const WITNESS_PORT: u16 = 7790;

/// Time limit of one attempt to connect and ask.
const ATTEMPT_MAX: Duration = Duration::from_millis(500);

/// The witness gave no answer, in one line. The request may have been decided all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("witness {address} not reached: {why}")]
pub struct WitnessSilence {
    /// The address that was tried last.
    pub address: String,
    pub why: String,
}

/// An answer, with the moment from which its lease counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessReply {
    /// Read from the clock before the first attempt to send.
    pub sent: Moment,
    pub answer: WitnessAnswer,
}

/// A witness: the built-in one, or another service that keeps the same promises.
///
/// A request without an answer may have been decided, and may be decided later. An answer counts only for
/// its own request, in the process that sent it; see [`LeaseGuard`](super::lease::LeaseGuard).
pub trait WitnessStore {
    /// Asks about one group. A request may be sent twice; the second one is then refused as `Changed` if
    /// the first one arrived.
    fn ask(&self, request: WitnessRequest) -> LocalFuture<Result<WitnessReply, WitnessSilence>>;

    /// All groups, in the order of their UUIDs.
    fn list(&self) -> LocalFuture<Result<Vec<WitnessView>, WitnessSilence>>;
}

/// Client of the built-in witness. It keeps one session open, and makes it again when it breaks.
#[derive(Clone)]
pub struct WitnessClient(Rc<ClientState>);

struct ClientState {
    world: World,
    network: Rc<dyn Network>,
    addresses: Vec<Address>,
    secret: Option<WitnessSecret>,
    session: RefCell<Option<WitnessSession>>,
}

impl WitnessClient {
    /// A client of a witness with one or more addresses, which are tried in this order.
    ///
    /// # Panics
    ///
    /// Without an address.
    pub fn new(
        world: &World,
        network: Rc<dyn Network>,
        addresses: Vec<Address>,
        secret: Option<WitnessSecret>,
    ) -> Self {
        assert!(!addresses.is_empty(), "a witness has an address");
        let world = world.clone();
        Self(Rc::new(ClientState { world, network, addresses, secret, session: RefCell::new(None) }))
    }
}

impl WitnessStore for WitnessClient {
    fn ask(&self, request: WitnessRequest) -> LocalFuture<Result<WitnessReply, WitnessSilence>> {
        let state = Rc::clone(&self.0);
        Box::pin(async move {
            let sent = state.world.now();
            let body = state.exchange(encode_request(Some(&request)), MessageKind::Answer, |body| {
                let answer = decode_answer(body)?;
                let is_own = answer.view.as_ref().is_none_or(|view| view.group == request.group);
                if is_own { Ok(answer) } else { Err(MessageFault::Sequence) }
            });
            Ok(WitnessReply { sent, answer: body.await? })
        })
    }

    fn list(&self) -> LocalFuture<Result<Vec<WitnessView>, WitnessSilence>> {
        let state = Rc::clone(&self.0);
        Box::pin(async move { state.exchange(encode_request(None), MessageKind::List, decode_list).await })
    }
}

impl ClientState {
    /// Asks over the open session, then over a new one to each address.
    async fn exchange<T>(
        &self,
        request: Vec<u8>,
        kind: MessageKind,
        decode: impl Fn(&[u8]) -> Result<T, MessageFault>,
    ) -> Result<T, WitnessSilence> {
        let open = self.session.borrow_mut().take();
        if let Some(session) = open {
            let asked = self.ask_over(session, &request, kind, &decode);
            if let Some(Ok(answer)) = with_deadline(self.world.sleep(ATTEMPT_MAX), asked).await {
                return Ok(answer);
            }
        }
        let mut why = String::new();
        for address in &self.addresses {
            let attempt = async {
                let stream = self.network.connect(address).await.map_err(|error| error.to_string())?;
                let session =
                    WitnessSession::connect(&self.world, stream, self.secret.as_ref(), ANSWER_BYTES_MAX);
                let session = session.await.map_err(|end| end.to_string())?;
                self.ask_over(session, &request, kind, &decode).await.map_err(|end| end.to_string())
            };
            match with_deadline(self.world.sleep(ATTEMPT_MAX), attempt).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(reason)) => why = reason,
                None => why = format!("no answer in {} ms", ATTEMPT_MAX.as_millis()),
            }
        }
        let address = self.addresses.last().expect("a witness has an address").to_string();
        Err(WitnessSilence { address, why })
    }

    /// Asks, and keeps the session if it answered.
    async fn ask_over<T>(
        &self,
        mut session: WitnessSession,
        request: &[u8],
        expected: MessageKind,
        decode: impl Fn(&[u8]) -> Result<T, MessageFault>,
    ) -> Result<T, WitnessSessionEnd> {
        session.send(MessageKind::Request, request).await?;
        let (kind, body) = session.receive().await?;
        if kind != expected {
            return Err(MessageFault::Kind(kind as u16).into());
        }
        let answer = decode(&body)?;
        *self.session.borrow_mut() = Some(session);
        Ok(answer)
    }
}
