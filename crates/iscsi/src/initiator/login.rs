//! Login at a target: authentication and negotiation (RFC 7143, 6.3 and 11.12).
//!
//! Invariants:
//!
//! 1. If the options demand that the target authenticate itself, no login to a target that does not succeeds.
//! 2. A negotiated value is the offered one or weaker, by the rule of its key.

use super::InitiatorOptions;
use crate::{
    session::{
        chap::{self, Challenge},
        negotiation::{RECEIVE_BYTES, SessionParameters},
    },
    wire::{
        header::{Login, LoginResponse, PduHeader, opcode},
        pdu::{Digests, Pdu},
        text::{self, Pair},
    },
};
use tokio::io::AsyncWriteExt;
use world::{
    Address, IoError, IoErrorKind, IoResult, Network, Stream, World, network::reconnecting::ConnectFailure,
};

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Most requests of one login.
const ROUNDS_MAX: usize = 16;
/// Most bytes of text keys in one login response.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most redirections followed (status class 1).
const REDIRECTIONS_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionType<'a> {
    /// A session with the named target.
    Normal(&'a str),
    /// A discovery session.
    Discovery,
}

/// A connection in the full feature phase.
pub struct LoggedInConnection {
    pub stream: Stream,
    pub terms: SessionTerms,
}

/// Parameters and first sequence numbers of a session.
#[derive(Clone, Debug, Default)]
pub struct SessionTerms {
    pub parameters: SessionParameters,
    /// CmdSN of the first command.
    pub cmd_sn: u32,
    pub max_cmd_sn: u32,
    pub exp_stat_sn: u32,
}

impl SessionTerms {
    pub fn digests(&self) -> Digests {
        Digests { header: self.parameters.header_digest, data: self.parameters.data_digest }
    }
}

/// Connects to a portal and logs in; follows redirections.
///
/// # Errors
///
/// The portal does not answer; the login is refused; the target does not authenticate itself.
pub async fn log_in(
    world: &World,
    network: &dyn Network,
    portal: &Address,
    session_type: SessionType<'_>,
    session: [u8; 6],
    options: &InitiatorOptions,
) -> Result<LoggedInConnection, ConnectFailure> {
    let finally = |error| ConnectFailure { error, is_retryable: false };
    let mut portal = portal.clone();
    for _ in 0..=REDIRECTIONS_MAX {
        let stream = network.connect(&portal).await.map_err(finally)?;
        let mut login =
            LoginExchange { world, options, session_type, portal: &portal, session, stream, numbers: None };
        let ran = login.run().await;
        let outcome = ran.map_err(|error| {
            let is_retryable = error.kind() == IoErrorKind::Disconnected;
            ConnectFailure { error, is_retryable }
        })?;
        match outcome {
            LoginOutcome::LoggedIn(parameters, max_cmd_sn) => {
                let (cmd_sn, exp_stat_sn) = login.numbers.expect("the login was answered");
                let terms = SessionTerms { parameters, cmd_sn, max_cmd_sn, exp_stat_sn };
                return Ok(LoggedInConnection { stream: login.stream, terms });
            }
            LoginOutcome::Redirected(next) => portal = next,
        }
    }
    let story = format!("{portal}: too many redirections");
    Err(finally(IoError::new(IoErrorKind::Other, story)))
}

enum LoginOutcome {
    LoggedIn(SessionParameters, u32),
    Redirected(Address),
}

/// A login at one portal.
struct LoginExchange<'a> {
    world: &'a World,
    options: &'a InitiatorOptions,
    session_type: SessionType<'a>,
    portal: &'a Address,
    session: [u8; 6],
    stream: Stream,
    /// CmdSN and ExpStatSN, known after the first response.
    numbers: Option<(u32, u32)>,
}

/// A login response, its text reassembled.
struct LoginReply {
    flags: u8,
    pairs: Vec<Pair>,
    max_cmd_sn: u32,
    redirect: Option<Address>,
}

impl LoginReply {
    fn value(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

impl LoginExchange<'_> {
    fn fail<T>(&self, kind: IoErrorKind, why: impl std::fmt::Display) -> IoResult<T> {
        Err(IoError::new(kind, format!("login at {}: {why}", self.portal)))
    }

    async fn run(&mut self) -> IoResult<LoginOutcome> {
        let reply = self.authenticate().await?;
        if let Some(next) = reply.redirect {
            return Ok(LoginOutcome::Redirected(next));
        }
        if reply.flags & (TRANSIT | 3) != TRANSIT | OPERATIONAL {
            return self.fail(IoErrorKind::WrongType, "the target does not enter the operational stage");
        }
        self.negotiate().await
    }

    /// The security negotiation stage.
    async fn authenticate(&mut self) -> IoResult<LoginReply> {
        let options = self.options;
        let mut pairs = vec![("InitiatorName", options.name.clone())];
        match self.session_type {
            SessionType::Normal(target) => {
                pairs.push(("SessionType", "Normal".to_owned()));
                pairs.push(("TargetName", target.to_owned()));
            }
            SessionType::Discovery => pairs.push(("SessionType", "Discovery".to_owned())),
        }
        // With mutual CHAP demanded, None is not offered.
        let methods = match (&options.credentials, &options.target_credentials) {
            (None, _) => "None",
            (Some(_), None) => "CHAP,None",
            (Some(_), Some(_)) => "CHAP",
        };
        pairs.push(("AuthMethod", methods.to_owned()));
        let go_on = if options.credentials.is_none() { TRANSIT | OPERATIONAL } else { 0 };
        let first = self.ask(SECURITY << 2 | go_on, &pairs).await?;
        if first.redirect.is_some() || first.flags & TRANSIT != 0 {
            return match options.target_credentials {
                Some(_) if first.redirect.is_none() => {
                    self.fail(IoErrorKind::PermissionDenied, "the target does not authenticate itself")
                }
                _ => Ok(first),
            };
        }
        match (first.value("AuthMethod"), &options.credentials) {
            (Some("CHAP"), Some(_)) => self.exchange_challenges().await,
            (Some("None") | None, _) if options.target_credentials.is_none() => {
                self.ask(SECURITY << 2 | TRANSIT | OPERATIONAL, &[]).await
            }
            (said, _) => {
                let why = format!("unsupported authentication method {}", said.unwrap_or("none"));
                self.fail(IoErrorKind::PermissionDenied, why)
            }
        }
    }

    async fn exchange_challenges(&mut self) -> IoResult<LoginReply> {
        let own = self.options.credentials.clone().expect("CHAP is offered only with credentials");
        let reply = self.ask(SECURITY << 2, &[("CHAP_A", chap::MD5.to_owned())]).await?;
        let theirs = Challenge::of(&reply.pairs).filter(|_| reply.value("CHAP_A") == Some(chap::MD5));
        let Some(theirs) = theirs else {
            return self.fail(IoErrorKind::WrongType, "malformed CHAP challenge");
        };
        let mut answer = theirs.answer(&own).to_vec();
        let expected = self.options.target_credentials.as_ref();
        let ours = expected.map(|expected| (Challenge::draw(self.world), expected));
        if let Some((ours, _)) = &ours {
            answer.extend(ours.pairs());
        }
        let pairs: Vec<(&str, String)> =
            answer.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let reply = self.ask(SECURITY << 2 | TRANSIT | OPERATIONAL, &pairs).await?;
        match ours {
            Some((ours, expected)) if !ours.is_answered_by(expected, &reply.pairs) => {
                self.fail(IoErrorKind::PermissionDenied, "the target failed CHAP authentication")
            }
            _ => Ok(reply),
        }
    }

    async fn negotiate(&mut self) -> IoResult<LoginOutcome> {
        let digest = |is_wanted| if is_wanted { "CRC32C,None" } else { "None,CRC32C" }.to_owned();
        let Digests { header, data } = self.options.digests;
        let mut offers = vec![
            ("HeaderDigest", digest(header)),
            ("DataDigest", digest(data)),
            ("MaxRecvDataSegmentLength", RECEIVE_BYTES.to_string()),
        ];
        if self.session_type != SessionType::Discovery {
            let more = [
                ("InitialR2T", "No"),
                ("ImmediateData", "Yes"),
                ("MaxBurstLength", "1048576"),
                ("FirstBurstLength", "262144"),
                ("MaxOutstandingR2T", "8"),
                ("MaxConnections", "1"),
                ("ErrorRecoveryLevel", "0"),
                ("DataPDUInOrder", "Yes"),
                ("DataSequenceInOrder", "Yes"),
                ("DefaultTime2Wait", "0"),
                ("DefaultTime2Retain", "0"),
            ];
            offers.extend(more.map(|(key, value)| (key, value.to_owned())));
        }
        let mut parameters =
            SessionParameters { receive_bytes_max: RECEIVE_BYTES, ..SessionParameters::default() };
        let mut said = offers.clone();
        for _ in 0..ROUNDS_MAX {
            let reply = self.ask(OPERATIONAL << 2 | TRANSIT | FULL_FEATURE, &said).await?;
            said = Vec::new();
            for (key, value) in &reply.pairs {
                let offer = offers.iter().find(|(known, _)| known == key).map(|(_, offer)| offer.as_str());
                // A target declares keys of its own (TargetAlias, TargetPortalGroupTag) that need no answer.
                let is_plain = offer.is_none() && (key.starts_with("Target") || key.starts_with("X-"));
                if !is_plain && !parameters.answered(key, offer, value) {
                    return self
                        .fail(IoErrorKind::WrongType, format!("invalid answer {key}={value} to {offer:?}"));
                }
            }
            if reply.flags & (TRANSIT | 3) == TRANSIT | FULL_FEATURE {
                return Ok(LoginOutcome::LoggedIn(parameters, reply.max_cmd_sn));
            }
        }
        self.fail(IoErrorKind::WrongType, "negotiation does not end")
    }

    /// Sends text keys and returns the whole answer, which may span several responses.
    async fn ask(&mut self, flags: u8, pairs: &[(&str, String)]) -> IoResult<LoginReply> {
        let mut data = text::write(pairs.iter().map(|(key, value)| (key, value)));
        let mut flags = flags;
        let mut text = Vec::new();
        for _ in 0..ROUNDS_MAX {
            self.send(flags, std::mem::take(&mut data)).await?;
            let (response, more) = self.receive().await?;
            text.extend(more);
            let numbers = &response.numbers;
            self.numbers = Some((numbers.exp_cmd_sn.get(), numbers.stat_sn.get().wrapping_add(1)));
            let refusal = (response.status_class, response.status_detail);
            if !matches!(refusal.0, 0 | 1) {
                return self.refused(refusal);
            }
            if text.len() > TEXT_BYTES_MAX {
                return self.fail(IoErrorKind::WrongType, "the response is too long");
            }
            if response.flags & CONTINUE != 0 {
                // An empty request asks for the next part.
                flags &= !(TRANSIT | 3);
                continue;
            }
            let pairs = text::read(&text);
            let Some(pairs) = pairs else {
                return self.fail(IoErrorKind::WrongType, "malformed response");
            };
            let max_cmd_sn = numbers.max_cmd_sn.get();
            let mut reply = LoginReply { flags: response.flags, pairs, max_cmd_sn, redirect: None };
            if refusal.0 == 1 {
                reply.redirect = Some(self.other_portal(&reply)?);
            }
            return Ok(reply);
        }
        self.fail(IoErrorKind::WrongType, "the response does not end")
    }

    /// The portal in `TargetAddress=HOST:PORT,GROUP` of a redirection.
    fn other_portal(&self, reply: &LoginReply) -> IoResult<Address> {
        let address = reply.value("TargetAddress").unwrap_or_default();
        let address = address.split(',').next().unwrap_or_default();
        match Address::parse(address, crate::PORT) {
            Ok(address @ Address::Tcp { .. }) => Ok(address),
            _ => self.fail(IoErrorKind::WrongType, format!("redirection to an invalid address: {address:?}")),
        }
    }

    async fn send(&mut self, flags: u8, data: Vec<u8>) -> IoResult<()> {
        let (command, status) = self.numbers.unwrap_or((1, 0));
        let request = Login {
            first: crate::wire::header::IMMEDIATE,
            flags,
            isid: self.session,
            cmd_sn: command.into(),
            exp_stat_sn: status.into(),
            itt: 1.into(),
            ..Login::empty()
        };
        let pdu = Pdu::new(request.to_bytes(), data).encode(Digests::default());
        let sent = async {
            self.stream.write_all(&pdu).await?;
            self.stream.flush().await
        };
        sent.await.or_else(|error| self.fail(IoErrorKind::Disconnected, error))
    }

    async fn receive(&mut self) -> IoResult<(LoginResponse, Vec<u8>)> {
        match Pdu::read(&mut self.stream, Digests::default(), TEXT_BYTES_MAX).await {
            Ok(Some(pdu)) if pdu.opcode() == opcode::LOGIN_RESPONSE => {
                Ok((LoginResponse::of(&pdu.header), pdu.data))
            }
            Ok(Some(_)) => self.fail(IoErrorKind::WrongType, "unexpected response"),
            Ok(None) => self.fail(IoErrorKind::Disconnected, "the target closed the connection"),
            Err(error) => self.fail(IoErrorKind::Disconnected, error),
        }
    }

    fn refused<T>(&self, (class, detail): (u8, u8)) -> IoResult<T> {
        let (kind, why) = match (class, detail) {
            (2, 1) => (IoErrorKind::PermissionDenied, "authentication failed"),
            (2, 2) => (IoErrorKind::PermissionDenied, "initiator not authorized"),
            (2, 3) => (IoErrorKind::NotFound, "no such target"),
            (2, 4) => (IoErrorKind::NotFound, "the target was removed"),
            (2, 6) => (IoErrorKind::Busy, "too many connections"),
            (3, _) => (IoErrorKind::Busy, "the target is temporarily unavailable"),
            _ => (IoErrorKind::WrongType, "login refused"),
        };
        self.fail(kind, format!("{why} (status {class:#04x}{detail:02x})"))
    }
}
