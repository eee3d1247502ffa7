//! The login of an initiator at a target, as a state machine without I/O (RFC 7143, 6.3 and 11.12).
//!
//! Invariants:
//!
//! 1. The full feature phase is entered only by who has named itself, and a target it may use if it wants one.
//! 2. Stages are gone through upwards.

use super::negotiation::{Agreed, RECEIVE_BYTES};
use crate::{
    target::{Target, Targets},
    wire::{
        pdu::Login,
        text::{self, Pair},
    },
};
use std::rc::Rc;

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
    targets: &'t Targets,
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
    pub fn new(targets: &'t Targets) -> Self {
        Self {
            targets,
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
        for (key, offer) in &pairs {
            self.answer(key, offer, &mut answers)?;
        }
        if present == OPERATIONAL && !self.has_declared && self.is_normal {
            // What we take has to be said, whether or not the other end says its own.
            self.has_declared = true;
            self.agreed.receive_bytes_max = RECEIVE_BYTES;
            answers.push(("MaxRecvDataSegmentLength".to_owned(), RECEIVE_BYTES.to_string()));
        }
        Ok(self.go_on(request, transits.then_some(next), answers))
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
        if self.is_normal {
            let name = said("TargetName").ok_or(Refusal::MISSING_PARAMETER)?;
            let target = self.targets.find(name).ok_or(Refusal::NOT_FOUND)?;
            if !target.admits(initiator) {
                return Err(Refusal::FORBIDDEN);
            }
            self.target = Some(Rc::clone(target));
            answers.push(("TargetPortalGroupTag".to_owned(), PORTAL_GROUP.to_string()));
        }
        self.initiator = Some(initiator.to_owned());
        self.has_named = true;
        Ok(())
    }

    fn answer(&mut self, key: &str, offer: &str, answers: &mut Vec<Pair>) -> Result<(), Refusal> {
        if key == "AuthMethod" {
            if self.stage != SECURITY {
                return Err(Refusal::INITIATOR_ERROR);
            }
            if !offer.split(',').any(|method| method == "None") {
                return Err(Refusal::AUTHENTICATION_FAILURE);
            }
            answers.push((key.to_owned(), "None".to_owned()));
            return Ok(());
        }
        self.has_declared |= key == "MaxRecvDataSegmentLength";
        let answer = self.agreed.answer(key, offer, self.is_normal);
        answers.extend(answer.map(|answer| (key.to_owned(), answer)));
        Ok(())
    }
}
