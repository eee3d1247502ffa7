//! A login at a target: who we are, who it is, and the terms (RFC 7143, 6.3 and 11.12).
//!
//! Invariants:
//!
//! 1. Where we want the target to show who it is, no login succeeds at one that has not.
//! 2. What the target agrees to is what we offered, or less.

use super::InitiatorOptions;
use crate::{
    session::{
        chap::{self, Challenge},
        negotiation::{Agreed, RECEIVE_BYTES},
    },
    wire::{
        frame::{Digests, Frame},
        pdu::{Header, Login, LoginResponse, opcode},
        text::{self, Pair},
    },
};
use tokio::io::AsyncWriteExt;
use world::{Address, IoError, IoErrorKind, IoResult, Network, Stream, World};

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Requests of one login at most.
const ROUNDS_MAX: usize = 16;
/// Bytes of keys of one login at most.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Portals a login is sent on to at most.
const REDIRECTIONS_MAX: usize = 4;

/// What a login is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// To use a target.
    Use(&'a str),
    /// To ask which there are.
    Find,
}

/// A connection that is logged in.
pub struct Session {
    /// What bytes go through.
    pub stream: Stream,
    /// The terms.
    pub agreed: Agreed,
    /// Number of the first command.
    pub command_next: u32,
    /// Number of the last command that may be sent now.
    pub command_max: u32,
    /// Number of the status that is to come next.
    pub status_next: u32,
}

/// Why there is no session.
pub struct NotLoggedIn {
    /// What went wrong.
    pub error: IoError,
    /// Somebody answered there, and hung up before the login was over: a server that ends or begins, or what stands
    /// before one. Another try may succeed.
    pub was_hung_up: bool,
}

impl From<NotLoggedIn> for IoError {
    fn from(not: NotLoggedIn) -> Self {
        not.error
    }
}

/// Connects to a portal and logs in, following it where it sends us on to another one.
///
/// # Errors
///
/// Nobody answers there; the login is refused; the target does not show who it is.
pub async fn log_in(
    world: &World,
    network: &dyn Network,
    portal: &Address,
    purpose: Purpose<'_>,
    session: [u8; 6],
    options: &InitiatorOptions,
) -> Result<Session, NotLoggedIn> {
    let finally = |error| NotLoggedIn { error, was_hung_up: false };
    let mut portal = portal.clone();
    for _ in 0..=REDIRECTIONS_MAX {
        let stream = network.connect(&portal).await.map_err(finally)?;
        let mut login = OneLogin { world, options, purpose, portal: &portal, session, stream, numbers: None };
        let ran = login.run().await;
        let outcome = ran.map_err(|error| {
            let was_hung_up = error.kind() == IoErrorKind::Disconnected;
            NotLoggedIn { error, was_hung_up }
        })?;
        match outcome {
            Outcome::LoggedIn(agreed, command_max) => {
                let (command_next, status_next) = login.numbers.expect("it was answered");
                return Ok(Session { stream: login.stream, agreed, command_next, command_max, status_next });
            }
            Outcome::Elsewhere(next) => portal = next,
        }
    }
    let story = format!("{portal}: it sends us on from portal to portal");
    Err(finally(IoError::new(IoErrorKind::Other, story)))
}

enum Outcome {
    LoggedIn(Agreed, u32),
    Elsewhere(Address),
}

/// One login, at one portal.
struct OneLogin<'a> {
    world: &'a World,
    options: &'a InitiatorOptions,
    purpose: Purpose<'a>,
    portal: &'a Address,
    session: [u8; 6],
    stream: Stream,
    /// Of the next command and status, once something was answered.
    numbers: Option<(u32, u32)>,
}

/// What one request was answered with.
struct Answered {
    flags: u8,
    pairs: Vec<Pair>,
    command_max: u32,
    elsewhere: Option<Address>,
}

impl Answered {
    fn value(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }
}

impl OneLogin<'_> {
    fn fail<T>(&self, kind: IoErrorKind, why: impl std::fmt::Display) -> IoResult<T> {
        Err(IoError::new(kind, format!("logging in at {}: {why}", self.portal)))
    }

    async fn run(&mut self) -> IoResult<Outcome> {
        let answered = self.show_who_we_are().await?;
        if let Some(next) = answered.elsewhere {
            return Ok(Outcome::Elsewhere(next));
        }
        if answered.flags & (TRANSIT | 3) != TRANSIT | OPERATIONAL {
            return self
                .fail(IoErrorKind::WrongType, "the target does not go on from who we are to the terms");
        }
        self.agree_on_terms().await
    }

    /// The stage in which both ends show who they are.
    async fn show_who_we_are(&mut self) -> IoResult<Answered> {
        let options = self.options;
        let mut pairs = vec![("InitiatorName", options.name.clone())];
        match self.purpose {
            Purpose::Use(target) => {
                pairs.push(("SessionType", "Normal".to_owned()));
                pairs.push(("TargetName", target.to_owned()));
            }
            Purpose::Find => pairs.push(("SessionType", "Discovery".to_owned())),
        }
        // Who must be shown who the target is does not go without.
        let methods = match (&options.credentials, &options.target_credentials) {
            (None, _) => "None",
            (Some(_), None) => "CHAP,None",
            (Some(_), Some(_)) => "CHAP",
        };
        pairs.push(("AuthMethod", methods.to_owned()));
        let go_on = if options.credentials.is_none() { TRANSIT | OPERATIONAL } else { 0 };
        let first = self.ask(SECURITY << 2 | go_on, &pairs).await?;
        if first.elsewhere.is_some() || first.flags & TRANSIT != 0 {
            return match options.target_credentials {
                Some(_) if first.elsewhere.is_none() => {
                    self.fail(IoErrorKind::PermissionDenied, "the target does not show who it is")
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
                let why = format!("it wants to know who we are by {}", said.unwrap_or("nothing we know"));
                self.fail(IoErrorKind::PermissionDenied, why)
            }
        }
    }

    async fn exchange_challenges(&mut self) -> IoResult<Answered> {
        let own = self.options.credentials.clone().expect("CHAP was offered by who has them");
        let asked = self.ask(SECURITY << 2, &[("CHAP_A", chap::MD5.to_owned())]).await?;
        let theirs = Challenge::of(&asked.pairs).filter(|_| asked.value("CHAP_A") == Some(chap::MD5));
        let Some(theirs) = theirs else {
            return self.fail(IoErrorKind::WrongType, "the target's challenge makes no sense");
        };
        let mut answer = theirs.answer(&own).to_vec();
        let expected = self.options.target_credentials.as_ref();
        let ours = expected.map(|expected| (Challenge::draw(self.world), expected));
        if let Some((ours, _)) = &ours {
            answer.extend(ours.pairs());
        }
        let pairs: Vec<(&str, String)> =
            answer.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        let answered = self.ask(SECURITY << 2 | TRANSIT | OPERATIONAL, &pairs).await?;
        match ours {
            Some((ours, expected)) if !ours.is_answered_by(expected, &answered.pairs) => {
                self.fail(IoErrorKind::PermissionDenied, "the target does not know the secret it should")
            }
            _ => Ok(answered),
        }
    }

    async fn agree_on_terms(&mut self) -> IoResult<Outcome> {
        let digest = |is_wanted| if is_wanted { "CRC32C,None" } else { "None,CRC32C" }.to_owned();
        let Digests { header, data } = self.options.digests;
        let mut offers = vec![
            ("HeaderDigest", digest(header)),
            ("DataDigest", digest(data)),
            ("MaxRecvDataSegmentLength", RECEIVE_BYTES.to_string()),
        ];
        if self.purpose != Purpose::Find {
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
        let mut agreed = Agreed { receive_bytes_max: RECEIVE_BYTES, ..Agreed::default() };
        let mut said = offers.clone();
        for _ in 0..ROUNDS_MAX {
            let answered = self.ask(OPERATIONAL << 2 | TRANSIT | FULL_FEATURE, &said).await?;
            said = Vec::new();
            for (key, value) in &answered.pairs {
                let offer = offers.iter().find(|(known, _)| known == key).map(|(_, offer)| offer.as_str());
                // Of itself a target tells what we need not know.
                let is_plain = offer.is_none() && (key.starts_with("Target") || key.starts_with("X-"));
                if !is_plain && !agreed.answered(key, offer, value) {
                    return self
                        .fail(IoErrorKind::WrongType, format!("it answers {offer:?} with {key}={value}"));
                }
            }
            if answered.flags & (TRANSIT | 3) == TRANSIT | FULL_FEATURE {
                return Ok(Outcome::LoggedIn(agreed, answered.command_max));
            }
        }
        self.fail(IoErrorKind::WrongType, "the target comes to no end")
    }

    /// Sends keys, and gives what is answered: all of it, if it comes in parts.
    async fn ask(&mut self, flags: u8, pairs: &[(&str, String)]) -> IoResult<Answered> {
        let mut data = text::write(pairs.iter().map(|(key, value)| (key, value)));
        let mut flags = flags;
        let mut text = Vec::new();
        for _ in 0..ROUNDS_MAX {
            self.send(flags, std::mem::take(&mut data)).await?;
            let (response, more) = self.receive().await?;
            text.extend(more);
            let numbers = &response.numbers;
            self.numbers = Some((numbers.expected_command.get(), numbers.status.get().wrapping_add(1)));
            let refusal = (response.status_class, response.status_detail);
            if !matches!(refusal.0, 0 | 1) {
                return self.refused(refusal);
            }
            if text.len() > TEXT_BYTES_MAX {
                return self.fail(IoErrorKind::WrongType, "its answer is too long");
            }
            if response.flags & CONTINUE != 0 {
                // Go on: we have nothing to say meanwhile.
                flags &= !(TRANSIT | 3);
                continue;
            }
            let pairs = text::read(&text);
            let Some(pairs) = pairs else {
                return self.fail(IoErrorKind::WrongType, "its answer makes no sense");
            };
            let command_max = numbers.command_max.get();
            let mut answered = Answered { flags: response.flags, pairs, command_max, elsewhere: None };
            if refusal.0 == 1 {
                answered.elsewhere = Some(self.other_portal(&answered)?);
            }
            return Ok(answered);
        }
        self.fail(IoErrorKind::WrongType, "its answer does not end")
    }

    /// `TargetAddress=HOST:PORT,GROUP` of who sends us on.
    fn other_portal(&self, answered: &Answered) -> IoResult<Address> {
        let address = answered.value("TargetAddress").unwrap_or_default();
        let address = address.split(',').next().unwrap_or_default();
        match Address::parse(address, crate::PORT) {
            Ok(address @ Address::Tcp { .. }) => Ok(address),
            _ => self.fail(IoErrorKind::WrongType, format!("it sends us on to {address:?}")),
        }
    }

    async fn send(&mut self, flags: u8, data: Vec<u8>) -> IoResult<()> {
        let (command, status) = self.numbers.unwrap_or((1, 0));
        let request = Login {
            first: crate::wire::pdu::IMMEDIATE,
            flags,
            initiator_session: self.session,
            command_number: command.into(),
            expected_status: status.into(),
            task: 1.into(),
            ..Login::empty()
        };
        let frame = Frame::new(request.to_bytes(), data).encode(Digests::default());
        let sent = async {
            self.stream.write_all(&frame).await?;
            self.stream.flush().await
        };
        sent.await.or_else(|error| self.fail(IoErrorKind::Disconnected, error))
    }

    async fn receive(&mut self) -> IoResult<(LoginResponse, Vec<u8>)> {
        match Frame::read(&mut self.stream, Digests::default(), TEXT_BYTES_MAX).await {
            Ok(Some(frame)) if frame.opcode() == opcode::LOGIN_RESPONSE => {
                Ok((LoginResponse::of(&frame.header), frame.data))
            }
            Ok(Some(_)) => self.fail(IoErrorKind::WrongType, "it answers with something else"),
            Ok(None) => self.fail(IoErrorKind::Disconnected, "it hung up"),
            Err(unreadable) => self.fail(IoErrorKind::Disconnected, unreadable),
        }
    }

    fn refused<T>(&self, (class, detail): (u8, u8)) -> IoResult<T> {
        let (kind, why) = match (class, detail) {
            (2, 1) => (IoErrorKind::PermissionDenied, "the target did not take our name and secret"),
            (2, 2) => (IoErrorKind::PermissionDenied, "the target does not let us in"),
            (2, 3) => (IoErrorKind::NotFound, "there is no such target"),
            (2, 4) => (IoErrorKind::NotFound, "the target is gone"),
            (2, 6) => (IoErrorKind::Busy, "the target takes no more connections"),
            (3, _) => (IoErrorKind::Busy, "the target cannot take us now"),
            _ => (IoErrorKind::WrongType, "the target refuses the login"),
        };
        self.fail(kind, format!("{why} (status {class:#04x}{detail:02x})"))
    }
}
