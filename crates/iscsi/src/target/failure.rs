//! Reasons for which a target ends a session, or refuses it.

use super::{failed_logins::ThrottledLogins, unit_holders::UnitConflict};
use crate::{session::login::LoginRefusal, wire::pdu::PduError};
use std::io;
use thiserror::Error;

/// The reason a connection ended without a logout.
#[derive(Debug, Error)]
pub enum SessionFailure {
    #[error("login timed out")]
    LoginTimeout,
    #[error("login refused: {0}")]
    LoginRefused(LoginRefusal),
    /// The initiator's name has failed too often.
    #[error("{0}")]
    LoginsThrottled(Box<ThrottledLogins>),
    /// Another initiator holds an exclusive unit of the target.
    #[error("{0}")]
    UnitHeld(Box<UnitConflict>),
    /// Another PDU came before the login was over.
    #[error("command before login")]
    CommandBeforeLogin,
    #[error("login request in the full feature phase")]
    SecondLogin,
    /// A NOP-In stayed unanswered.
    #[error("the initiator does not respond")]
    NoResponse,
    /// Another session has its name (RFC 7143, 6.3.5), or the target was reset.
    #[error("the session was reinstated or reset")]
    Reinstatement,
    /// A unit or a right was taken from the initiator.
    #[error(
        "units or rights of the session have changed; the initiator finds the rest when it logs in again"
    )]
    RightsLost,
    /// The operator ended it.
    #[error("the session was ended by the operator")]
    EndedByOperator,
    /// A unit was moved to another pool.
    #[error("a unit of the session is in another pool now; the initiator finds it when it logs in again")]
    Moved,
    /// A PDU was damaged or too long, or the connection broke.
    #[error("{0}")]
    Pdu(PduError),
    #[error("sending failed: {0}")]
    Send(io::Error),
    /// The initiator did not read its last responses in time.
    #[error("the initiator does not read its last responses")]
    UnreadResponses,
}

impl From<PduError> for SessionFailure {
    fn from(error: PduError) -> Self {
        Self::Pdu(error)
    }
}
