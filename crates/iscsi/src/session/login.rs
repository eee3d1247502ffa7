//! The login of an initiator at a target, as a state machine without I/O (RFC 7143, 6.3 and 11.12).
//!
//! Invariants:
//!
//! 1. The full feature phase is entered only by who has named itself, and has shown who it is if it has to.
//! 2. A target that an initiator may not use is not there for it.
//! 3. Stages are gone through upwards.

use super::{
    chap::{self, Challenge},
    negotiation::{Agreed, RECEIVE_BYTES},
};
use crate::{
    target::{Target, Targets},
    wire::{
        pdu::Login,
        text::{self, Pair},
    },
};
use std::{fmt, rc::Rc};
use world::World;

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;
/// Stages.
const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Bytes of keys of one login at most, however many requests carry them.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Our portal group.
pub const PORTAL_GROUP: u16 = 1;

/// Why a login is refused: status class and detail (RFC 7143, 11.13.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub u8, pub u8);

impl Refusal {
    /// It is served by another portal for now: no error.
    pub const MOVED: Self = Self(1, 1);
    /// Something is not right.
    pub const INITIATOR_ERROR: Self = Self(2, 0);
    /// Who it is was not shown, and must be.
    pub const AUTHENTICATION_FAILURE: Self = Self(2, 1);
    /// It may not use that target.
    pub const FORBIDDEN: Self = Self(2, 2);
    /// There is no such target.
    pub const NOT_FOUND: Self = Self(2, 3);
    /// A version nobody here speaks.
    pub const UNSUPPORTED_VERSION: Self = Self(2, 5);
    /// A name is missing.
    pub const MISSING_PARAMETER: Self = Self(2, 7);
    /// Another kind of session.
    pub const SESSION_TYPE: Self = Self(2, 9);
    /// There is no such session to add to.
    pub const NO_SESSION: Self = Self(2, 0x0a);
    /// Not what is to come now.
    pub const INVALID_DURING_LOGIN: Self = Self(2, 0x0b);
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match *self {
            Self::AUTHENTICATION_FAILURE => "it does not show who it is",
            Self::FORBIDDEN => "it is not admitted",
            Self::NOT_FOUND => "there is no such target for it",
            Self::UNSUPPORTED_VERSION => "it speaks another version",
            Self::MISSING_PARAMETER => "it leaves out a name",
            Self::SESSION_TYPE => "it wants a session of an unknown type",
            Self::NO_SESSION => "it adds to a session that is not there",
            _ => "it does not keep to the protocol",
        };
        write!(f, "{why} (status {:#04x}{:02x})", self.0, self.1)
    }
}

/// How far an initiator has come in showing who it is.
#[derive(Debug)]
enum Proof {
    /// It has shown it, or need not.
    Enough,
    /// It has to.
    Wanted,
    /// CHAP was agreed on.
    ByChap,
    /// It was asked this.
    Asked(Challenge),
}

/// Who is logged in, to what, on which terms.
#[derive(Clone)]
pub struct LoggedIn {
    /// Name of the initiator.
    pub initiator: String,
    /// What it calls its session.
    pub session: [u8; 6],
    /// What it uses; none in a session that only asks which targets there are.
    pub target: Option<Rc<Target>>,
    /// The terms.
    pub agreed: Agreed,
}

/// What is answered.
pub struct Answer {
    /// Flags of the response.
    pub flags: u8,
    /// Its text.
    pub pairs: Vec<Pair>,
    /// The login is over.
    pub logged_in: Option<LoggedIn>,
}

/// See the module's documentation.
pub struct LoginMachine<'t> {
    world: &'t World,
    targets: &'t Targets,
    proof: Proof,
    portal: Option<String>,
    stage: u8,
    text: Vec<u8>,
    agreed: Agreed,
    initiator: Option<String>,
    target: Option<Rc<Target>>,
    is_normal: bool,
    has_named: bool,
    has_declared: bool,
}

impl<'t> LoginMachine<'t> {
    /// Nobody has said anything.
    pub fn new(world: &'t World, targets: &'t Targets) -> Self {
        Self {
            world,
            targets,
            proof: Proof::Wanted,
            portal: None,
            stage: SECURITY,
            text: Vec::new(),
            agreed: Agreed::default(),
            initiator: None,
            target: None,
            is_normal: true,
            has_named: false,
            has_declared: false,
        }
    }

    /// Where it was sent on to.
    pub fn portal(&self) -> Option<&str> {
        self.portal.as_deref()
    }

    /// Answers a request with its data.
    ///
    /// # Errors
    ///
    /// Why it is refused: the connection ends.
    pub fn take(&mut self, request: &Login, data: &[u8]) -> Result<Answer, Refusal> {
        let (present, next) = (request.flags >> 2 & 3, request.flags & 3);
        let transits = request.flags & TRANSIT != 0;
        let is_stage = matches!(present, SECURITY | OPERATIONAL) && present >= self.stage;
        if request.version_min > 0 {
            return Err(Refusal::UNSUPPORTED_VERSION);
        }
        if !is_stage || (transits && (next <= present || next == 2)) {
            return Err(Refusal::INVALID_DURING_LOGIN);
        }
        if request.target_session.get() != 0 && !self.has_named {
            // One connection a session.
            return Err(Refusal::NO_SESSION);
        }
        self.stage = present;
        self.text.extend(data);
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(Refusal::INITIATOR_ERROR);
        }
        if request.flags & CONTINUE != 0 {
            let is_wrong = transits;
            let more = Answer { flags: present << 2, pairs: Vec::new(), logged_in: None };
            return if is_wrong { Err(Refusal::INITIATOR_ERROR) } else { Ok(more) };
        }
        let pairs = text::read(&std::mem::take(&mut self.text)).ok_or(Refusal::INITIATOR_ERROR)?;
        let mut answers = Vec::new();
        if !self.has_named {
            self.name(&pairs, &mut answers)?;
        }
        if present == SECURITY {
            self.prove(&pairs, &mut answers)?;
        } else if !matches!(self.proof, Proof::Enough) {
            return Err(Refusal::AUTHENTICATION_FAILURE);
        }
        for (key, offer) in pairs.iter().filter(|(key, _)| key != "AuthMethod" && !key.starts_with("CHAP_")) {
            self.answer(key, offer, &mut answers)?;
        }
        if present == OPERATIONAL && !self.has_declared && self.is_normal {
            // What we take has to be said, whether or not the other end says its own.
            self.has_declared = true;
            self.agreed.receive_bytes_max = RECEIVE_BYTES;
            answers.push(("MaxRecvDataSegmentLength".to_owned(), RECEIVE_BYTES.to_string()));
        }
        // Who has not yet shown who it is stays where it is.
        let goes_on = transits && matches!(self.proof, Proof::Enough);
        Ok(self.go_on(request, goes_on.then_some(next), answers))
    }

    fn go_on(&mut self, request: &Login, next: Option<u8>, pairs: Vec<Pair>) -> Answer {
        let present = self.stage;
        let Some(next) = next else { return Answer { flags: present << 2, pairs, logged_in: None } };
        self.stage = next;
        let logged_in = (next == FULL_FEATURE).then(|| LoggedIn {
            initiator: self.initiator.clone().expect("it has named itself"),
            session: request.initiator_session,
            target: self.target.clone(),
            agreed: self.agreed.clone(),
        });
        Answer { flags: TRANSIT | present << 2 | next, pairs, logged_in }
    }

    /// Who it is, and what it wants: said in the first request.
    fn name(&mut self, pairs: &[Pair], answers: &mut Vec<Pair>) -> Result<(), Refusal> {
        let said = |key: &str| pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
        let initiator = said("InitiatorName").filter(|name| !name.is_empty() && name.len() <= 223);
        let initiator = initiator.ok_or(Refusal::MISSING_PARAMETER)?;
        self.is_normal = match said("SessionType") {
            None | Some("Normal") => true,
            Some("Discovery") => false,
            Some(_) => return Err(Refusal::SESSION_TYPE),
        };
        let access = self.targets.access();
        if !access.admits(initiator) {
            return Err(Refusal::FORBIDDEN);
        }
        if access.credentials_of(initiator).is_none() {
            self.proof = Proof::Enough;
        }
        if self.is_normal {
            let name = said("TargetName").ok_or(Refusal::MISSING_PARAMETER)?;
            let target = self.targets.find(name, initiator).ok_or(Refusal::NOT_FOUND)?;
            if let Some(portal) = self.targets.next_portal() {
                self.portal = Some(portal.to_owned());
                return Err(Refusal::MOVED);
            }
            self.target = Some(Rc::clone(target));
            answers.push(("TargetPortalGroupTag".to_owned(), PORTAL_GROUP.to_string()));
        }
        self.initiator = Some(initiator.to_owned());
        self.has_named = true;
        Ok(())
    }

    /// What a request of the security stage brings its initiator nearer to having shown who it is (RFC 7143, 12.1.3).
    fn prove(&mut self, pairs: &[Pair], answers: &mut Vec<Pair>) -> Result<(), Refusal> {
        let said = |key: &str| pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
        let offers = |list: &str, wanted: &str| list.split(',').any(|offered| offered == wanted);
        let mut answer = |key: &str, value: &str| answers.push((key.to_owned(), value.to_owned()));
        match (&self.proof, said("AuthMethod")) {
            (Proof::Enough, None) | (Proof::Wanted, None) => {}
            (Proof::Enough, Some(methods)) if offers(methods, "None") => answer("AuthMethod", "None"),
            (Proof::Wanted, Some(methods)) if offers(methods, "CHAP") => {
                answer("AuthMethod", "CHAP");
                self.proof = Proof::ByChap;
            }
            (_, Some(_)) => return Err(Refusal::AUTHENTICATION_FAILURE),
            (Proof::ByChap, None) => {
                let algorithms = said("CHAP_A").ok_or(Refusal::MISSING_PARAMETER)?;
                if !offers(algorithms, chap::MD5) {
                    return Err(Refusal::AUTHENTICATION_FAILURE);
                }
                let challenge = Challenge::draw(self.world);
                answer("CHAP_A", chap::MD5);
                answers.extend(challenge.pairs());
                self.proof = Proof::Asked(challenge);
            }
            (Proof::Asked(challenge), None) => {
                let access = self.targets.access();
                let initiator = self.initiator.as_deref().expect("it has named itself");
                let known = access.credentials_of(initiator).expect("it has to show who it is");
                if !challenge.is_answered_by(known, pairs) {
                    return Err(Refusal::AUTHENTICATION_FAILURE);
                }
                if said("CHAP_C").is_some() || said("CHAP_I").is_some() {
                    let theirs = Challenge::of(pairs).ok_or(Refusal::AUTHENTICATION_FAILURE)?;
                    // Who sends ours back would have us answer it for them.
                    if theirs.is_like(challenge) {
                        return Err(Refusal::AUTHENTICATION_FAILURE);
                    }
                    let own = access.own().ok_or(Refusal::AUTHENTICATION_FAILURE)?;
                    answers.extend(theirs.answer(own));
                }
                self.proof = Proof::Enough;
            }
        }
        Ok(())
    }

    fn answer(&mut self, key: &str, offer: &str, answers: &mut Vec<Pair>) -> Result<(), Refusal> {
        self.has_declared |= key == "MaxRecvDataSegmentLength";
        let answer = self.agreed.answer(key, offer, self.is_normal);
        answers.extend(answer.map(|answer| (key.to_owned(), answer)));
        Ok(())
    }
}
