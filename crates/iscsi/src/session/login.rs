//! Login of an initiator at a target, as a state machine without I/O (RFC 7143, 6.3 and 11.12).
//!
//! Invariants:
//!
//! 1. The full feature phase is entered only after the initiator has named itself and has authenticated
//!    itself if it must.
//! 2. Targets an initiator may not access are hidden from it: a login to one fails as if it did not exist.
//! 3. Stages only advance.

use super::{
    chap::{self, Challenge, Credentials},
    negotiation::{RECEIVE_BYTES, SessionParameters},
};
use crate::wire::{
    header::Login,
    text::{self, Pair},
};
use std::fmt;
use world::World;

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;
/// Stages (CSG and NSG).
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Most bytes of text keys in one login, over all its requests.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Tag of a target's only portal group.
pub const PORTAL_GROUP: u16 = 1;

/// Status class and detail of a login that is refused (RFC 7143, 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRefusal(pub u8, pub u8);

impl LoginRefusal {
    /// Redirection: another portal serves the target for now. Not an error.
    pub const MOVED: Self = Self(1, 1);
    pub const INITIATOR_ERROR: Self = Self(2, 0);
    pub const AUTHENTICATION_FAILURE: Self = Self(2, 1);
    /// The initiator may not use any target.
    pub const FORBIDDEN: Self = Self(2, 2);
    /// The target does not exist or is hidden from the initiator.
    pub const NOT_FOUND: Self = Self(2, 3);
    pub const UNSUPPORTED_VERSION: Self = Self(2, 5);
    /// A required key is missing.
    pub const MISSING_PARAMETER: Self = Self(2, 7);
    /// An unknown SessionType.
    pub const SESSION_TYPE: Self = Self(2, 9);
    /// TSIH names a session that does not exist.
    pub const NO_SESSION: Self = Self(2, 0x0a);
    /// The target is there, and not in operation: the initiator may try again.
    pub const UNAVAILABLE: Self = Self(3, 1);
    /// A request that does not fit the stage.
    pub const INVALID_DURING_LOGIN: Self = Self(2, 0x0b);
}

impl fmt::Display for LoginRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match *self {
            Self::AUTHENTICATION_FAILURE => "authentication failed",
            Self::FORBIDDEN => "initiator not authorized",
            Self::NOT_FOUND => "target not found",
            Self::UNSUPPORTED_VERSION => "unsupported version",
            Self::MISSING_PARAMETER => "missing parameter",
            Self::SESSION_TYPE => "unsupported session type",
            Self::NO_SESSION => "session does not exist",
            Self::UNAVAILABLE => "target is stopped",
            _ => "initiator error",
        };
        write!(f, "{why} (status {:#04x}{:02x})", self.0, self.1)
    }
}

/// Progress of the initiator's authentication.
#[derive(Debug)]
enum Authentication {
    /// Authenticated, or authentication is not required.
    Complete,
    /// CHAP is required and not yet selected.
    Required,
    /// CHAP was selected; the initiator's algorithms come next.
    ChapSelected,
    /// The challenge was sent.
    Challenged(Challenge),
}

/// The access rules a login is checked against.
pub trait LoginPolicy {
    /// A target that sessions are bound to.
    type Target: Clone;

    /// True if the initiator may log in at all.
    fn admits(&self, initiator: &str) -> bool;

    /// Credentials the initiator must present; `None` if its name is enough.
    fn credentials_of(&self, initiator: &str) -> Option<&Credentials>;

    /// Credentials of the targets, for mutual CHAP.
    fn own_credentials(&self) -> Option<&Credentials>;

    /// The target of that name; `None` if it does not exist or is hidden from the initiator.
    fn target(&self, name: &str, initiator: &str) -> Option<Self::Target>;

    /// The portal to which the next login is redirected; `None` if it is served here.
    fn redirection(&self) -> Option<&str>;

    /// The portal of another server that has a target of that name for the initiator; `None` if there is none.
    fn moved_to(&self, _name: &str, _initiator: &str) -> Option<&str> {
        None
    }

    /// Tag of the portal group of a target here.
    fn portal_group(&self, _name: &str) -> u16 {
        PORTAL_GROUP
    }
}

/// A session in the full feature phase.
#[derive(Clone)]
pub struct NewSession<T> {
    pub initiator: String,
    pub isid: [u8; 6],
    /// `None` in a discovery session.
    pub target: Option<T>,
    pub parameters: SessionParameters,
}

/// Answer to a login request.
pub struct LoginReply<T> {
    pub flags: u8,
    pub pairs: Vec<Pair>,
    /// Set by the last answer of a login.
    pub session: Option<NewSession<T>>,
}

/// The target's side of one login.
pub struct TargetLogin<'t, P: LoginPolicy> {
    world: &'t World,
    policy: &'t P,
    authentication: Authentication,
    portal: Option<String>,
    stage: u8,
    text: Vec<u8>,
    parameters: SessionParameters,
    initiator: Option<String>,
    target: Option<P::Target>,
    is_normal: bool,
    has_named: bool,
    has_declared: bool,
}

impl<'t, P: LoginPolicy> TargetLogin<'t, P> {
    pub fn new(world: &'t World, policy: &'t P) -> Self {
        Self {
            world,
            policy,
            authentication: Authentication::Required,
            portal: None,
            stage: SECURITY,
            text: Vec::new(),
            parameters: SessionParameters::default(),
            initiator: None,
            target: None,
            is_normal: true,
            has_named: false,
            has_declared: false,
        }
    }

    /// The portal to which the initiator is redirected.
    pub fn portal(&self) -> Option<&str> {
        self.portal.as_deref()
    }

    /// Handles a login request and its text keys.
    ///
    /// # Errors
    ///
    /// The status to send before the connection ends.
    pub fn take(&mut self, request: &Login, data: &[u8]) -> Result<LoginReply<P::Target>, LoginRefusal> {
        let (present, next) = (request.flags >> 2 & 3, request.flags & 3);
        let transits = request.flags & TRANSIT != 0;
        let is_stage = matches!(present, SECURITY | OPERATIONAL) && present >= self.stage;
        if request.version_min > 0 {
            return Err(LoginRefusal::UNSUPPORTED_VERSION);
        }
        if !is_stage || (transits && (next <= present || next == 2)) {
            return Err(LoginRefusal::INVALID_DURING_LOGIN);
        }
        if request.tsih.get() != 0 && !self.has_named {
            // A session has one connection.
            return Err(LoginRefusal::NO_SESSION);
        }
        self.stage = present;
        self.text.extend(data);
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(LoginRefusal::INITIATOR_ERROR);
        }
        if request.flags & CONTINUE != 0 {
            let is_wrong = transits;
            let more = LoginReply { flags: present << 2, pairs: Vec::new(), session: None };
            return if is_wrong { Err(LoginRefusal::INITIATOR_ERROR) } else { Ok(more) };
        }
        let pairs = text::read(&std::mem::take(&mut self.text)).ok_or(LoginRefusal::INITIATOR_ERROR)?;
        let mut answers = Vec::new();
        if !self.has_named {
            self.name(&pairs, &mut answers)?;
        }
        if present == SECURITY {
            self.authenticate(&pairs, &mut answers)?;
        } else if !matches!(self.authentication, Authentication::Complete) {
            return Err(LoginRefusal::AUTHENTICATION_FAILURE);
        }
        for (key, offer) in pairs.iter().filter(|(key, _)| key != "AuthMethod" && !key.starts_with("CHAP_")) {
            self.answer(key, offer, &mut answers)?;
        }
        if present == OPERATIONAL && !self.has_declared && self.is_normal {
            // MaxRecvDataSegmentLength must be declared even if the initiator does not declare its own.
            self.has_declared = true;
            self.parameters.receive_bytes_max = RECEIVE_BYTES;
            answers.push(("MaxRecvDataSegmentLength".to_owned(), RECEIVE_BYTES.to_string()));
        }
        // The security stage ends only after authentication.
        let goes_on = transits && matches!(self.authentication, Authentication::Complete);
        Ok(self.go_on(request, goes_on.then_some(next), answers))
    }

    fn go_on(&mut self, request: &Login, next: Option<u8>, pairs: Vec<Pair>) -> LoginReply<P::Target> {
        let present = self.stage;
        let Some(next) = next else { return LoginReply { flags: present << 2, pairs, session: None } };
        self.stage = next;
        let session = (next == FULL_FEATURE).then(|| NewSession {
            initiator: self.initiator.clone().expect("the initiator has named itself"),
            isid: request.isid,
            target: self.target.clone(),
            parameters: self.parameters.clone(),
        });
        LoginReply { flags: TRANSIT | present << 2 | next, pairs, session }
    }

    /// Handles the keys of the first request: names and session type.
    fn name(&mut self, pairs: &[Pair], answers: &mut Vec<Pair>) -> Result<(), LoginRefusal> {
        let said = |key: &str| pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
        let initiator = said("InitiatorName").filter(|name| is_name(name));
        let initiator = initiator.ok_or(LoginRefusal::MISSING_PARAMETER)?;
        self.is_normal = match said("SessionType") {
            None | Some("Normal") => true,
            Some("Discovery") => false,
            Some(_) => return Err(LoginRefusal::SESSION_TYPE),
        };
        if !self.policy.admits(initiator) {
            return Err(LoginRefusal::FORBIDDEN);
        }
        if self.policy.credentials_of(initiator).is_none() {
            self.authentication = Authentication::Complete;
        }
        if self.is_normal {
            let name = said("TargetName").ok_or(LoginRefusal::MISSING_PARAMETER)?;
            let target = self.policy.target(name, initiator);
            let portal = match &target {
                Some(_) => self.policy.redirection(),
                None => Some(self.policy.moved_to(name, initiator).ok_or(LoginRefusal::NOT_FOUND)?),
            };
            if let Some(portal) = portal {
                self.portal = Some(portal.to_owned());
                return Err(LoginRefusal::MOVED);
            }
            self.target = target;
            answers.push(("TargetPortalGroupTag".to_owned(), self.policy.portal_group(name).to_string()));
        }
        self.initiator = Some(initiator.to_owned());
        self.has_named = true;
        Ok(())
    }

    /// Handles the keys of the security stage (RFC 7143, 12.1.3).
    fn authenticate(&mut self, pairs: &[Pair], answers: &mut Vec<Pair>) -> Result<(), LoginRefusal> {
        let said = |key: &str| pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
        let offers = |list: &str, wanted: &str| list.split(',').any(|offered| offered == wanted);
        let mut answer = |key: &str, value: &str| answers.push((key.to_owned(), value.to_owned()));
        match (&self.authentication, said("AuthMethod")) {
            (Authentication::Complete, None) | (Authentication::Required, None) => {}
            (Authentication::Complete, Some(methods)) if offers(methods, "None") => {
                answer("AuthMethod", "None")
            }
            (Authentication::Required, Some(methods)) if offers(methods, "CHAP") => {
                answer("AuthMethod", "CHAP");
                self.authentication = Authentication::ChapSelected;
            }
            (_, Some(_)) => return Err(LoginRefusal::AUTHENTICATION_FAILURE),
            (Authentication::ChapSelected, None) => {
                let algorithms = said("CHAP_A").ok_or(LoginRefusal::MISSING_PARAMETER)?;
                if !offers(algorithms, chap::MD5) {
                    return Err(LoginRefusal::AUTHENTICATION_FAILURE);
                }
                let challenge = Challenge::draw(self.world);
                answer("CHAP_A", chap::MD5);
                answers.extend(challenge.pairs());
                self.authentication = Authentication::Challenged(challenge);
            }
            (Authentication::Challenged(challenge), None) => {
                let initiator = self.initiator.as_deref().expect("the initiator has named itself");
                let known = self.policy.credentials_of(initiator).expect("authentication is required");
                if !challenge.is_answered_by(known, pairs) {
                    return Err(LoginRefusal::AUTHENTICATION_FAILURE);
                }
                if said("CHAP_C").is_some() || said("CHAP_I").is_some() {
                    let theirs = Challenge::of(pairs).ok_or(LoginRefusal::AUTHENTICATION_FAILURE)?;
                    // Answering our own challenge would let the initiator impersonate us.
                    if theirs.has_same_bytes(challenge) {
                        return Err(LoginRefusal::AUTHENTICATION_FAILURE);
                    }
                    let own = self.policy.own_credentials().ok_or(LoginRefusal::AUTHENTICATION_FAILURE)?;
                    answers.extend(theirs.answer(own));
                }
                self.authentication = Authentication::Complete;
            }
        }
        Ok(())
    }

    fn answer(&mut self, key: &str, offer: &str, answers: &mut Vec<Pair>) -> Result<(), LoginRefusal> {
        self.has_declared |= key == "MaxRecvDataSegmentLength";
        let answer = self.parameters.answer(key, offer, self.is_normal);
        answers.extend(answer.map(|answer| (key.to_owned(), answer)));
        Ok(())
    }
}

/// True for an iSCSI name as far as a target has to know it: it is shown, and stored.
fn is_name(name: &str) -> bool {
    /// Longest iSCSI name (RFC 7143, 4.2.7.2).
    const NAME_BYTES_MAX: usize = 223;
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}
