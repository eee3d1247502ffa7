//! Option haggling, as a state machine without I/O.
//!
//! Invariants:
//!
//! 1. Replies to an option end with one error or ACK, except for EXPORT_NAME and ABORT.
//! 2. STARTTLS resets all that was negotiated before.
//! 3. If TLS is required, no export is disclosed before STARTTLS.
//! 4. Metadata contexts are selected for one export; going on with another export drops them. Each selection
//!    replaces the one before, also if it fails.
//! 5. An option that is another thread's to answer has no reply here; that thread takes it as if it were the first.

use super::contexts::{CONTEXTS_MAX, SelectedContexts, listed, selected};
use crate::{
    export::{Export, ExportPlace, Exports},
    export_gate::GatePass,
    wire::{
        ByteReader, TEXT_BYTES_MAX,
        handshake::{ContextRequest, InfoReply, InfoRequest, OptionReplyHead, info, option, reply},
        write_string,
    },
};
use std::rc::Rc;

/// The reason for which a withheld export is refused.
pub const WITHHELD: &str =
    "the export is withheld, because its contents changed under its clients; its administrator readmits them";

/// The reason for which an export is refused whose thread has ended.
pub const STOPPED: &str = "the pool of the export is stopped; see the server's log";

/// Result of the handshake.
#[derive(Clone)]
pub struct NegotiatedExport {
    pub export: Rc<Export>,
    /// Structured replies were negotiated.
    pub is_structured: bool,
    /// Selected metadata contexts.
    pub contexts: SelectedContexts,
    pub is_encrypted: bool,
    pub(crate) pass: GatePass,
}

/// The step after an option.
pub enum HagglingStep {
    NextOption,
    /// Nothing was answered: another thread of the server takes this option.
    HandOver,
    /// Begin TLS, then read the next option.
    StartTls,
    /// Enter the transmission phase.
    Transmission(NegotiatedExport),
    /// Disconnect: all of the server's slots are taken. Holds their number.
    Refuse(usize),
    /// Disconnect: the option has no error reply. Holds the reason.
    Disconnect(&'static str),
    /// The client ended the handshake.
    End,
}

/// State of TLS on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsState {
    Unavailable,
    Optional,
    Required,
    Established,
}

/// Terms negotiated with a client that hold for all exports.
#[derive(Clone, Copy, Debug)]
pub struct CommonTerms {
    pub tls_state: TlsState,
    /// The client did not set NO_ZEROES, so EXPORT_NAME is answered with 124 zero bytes of padding.
    pub has_zeroes: bool,
    /// Structured replies were negotiated.
    pub is_structured: bool,
}

/// The server's side of option haggling.
pub struct Haggling<'e> {
    exports: &'e Exports,
    terms: CommonTerms,
    /// The selected metadata contexts, and their export.
    contexts: Option<(Rc<Export>, SelectedContexts)>,
}

impl<'e> Haggling<'e> {
    pub fn new(exports: &'e Exports, terms: CommonTerms) -> Self {
        Self { exports, terms, contexts: None }
    }

    pub fn terms(&self) -> CommonTerms {
        self.terms
    }

    /// Handles an option. `admit` takes a slot for a client entering transmission, or returns the number of
    /// slots.
    pub fn take(
        &mut self,
        asked: u32,
        data: &[u8],
        answer: &mut Vec<u8>,
        admit: impl FnOnce() -> Result<(), usize>,
    ) -> HagglingStep {
        let mut answers = OptionReplies { asked, into: answer };
        match asked {
            option::LIST | option::STARTTLS if self.exports.is_of_thread() => return HagglingStep::HandOver,
            // EXPORT_NAME has no error reply.
            option::EXPORT_NAME if self.terms.tls_state == TlsState::Required => {
                return HagglingStep::Disconnect("EXPORT_NAME before the required STARTTLS");
            }
            option::EXPORT_NAME => return self.export_name(data, answers.into, admit),
            option::ABORT => {
                answers.put(reply::ACK, &[]);
                return HagglingStep::End;
            }
            option::STARTTLS => return self.start_tls(data, &mut answers),
            _ if self.terms.tls_state == TlsState::Required => {
                answers.error(reply::TLS_REQUIRED, "TLS required: send STARTTLS first");
            }
            option::LIST if data.is_empty() => self.list(&mut answers),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.terms.is_structured = true;
                answers.put(reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => {
                answers.error(reply::INVALID, "the option takes no data")
            }
            option::INFO => match self.info(data, &mut answers) {
                Lookup::Found(_) | Lookup::Refused => {}
                Lookup::Elsewhere => return HagglingStep::HandOver,
            },
            option::GO => {
                let mut told = Vec::new();
                let export = match self.info(data, &mut OptionReplies { asked, into: &mut told }) {
                    Lookup::Found(export) => Rc::clone(export),
                    Lookup::Elsewhere => return HagglingStep::HandOver,
                    Lookup::Refused => {
                        answers.into.extend(told);
                        return HagglingStep::NextOption;
                    }
                };
                if let Err(count_max) = admit() {
                    let why = format!("{count_max} clients are connected, the limit of this server");
                    answers.error(reply::POLICY, &why);
                    return HagglingStep::Refuse(count_max);
                }
                answers.into.extend(told);
                return HagglingStep::Transmission(self.agreed(export));
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => return self.contexts(data, &mut answers),
            _ => answers.error(reply::UNSUPPORTED, "unsupported option"),
        }
        HagglingStep::NextOption
    }

    fn start_tls(&mut self, data: &[u8], answers: &mut OptionReplies<'_>) -> HagglingStep {
        match self.terms.tls_state {
            TlsState::Unavailable => answers.error(reply::POLICY, "TLS is not configured on this server"),
            TlsState::Established => answers.error(reply::INVALID, "TLS is already in use"),
            _ if !data.is_empty() => answers.error(reply::INVALID, "the option takes no data"),
            TlsState::Optional | TlsState::Required => {
                answers.put(reply::ACK, &[]);
                let has_zeroes = self.terms.has_zeroes;
                let tls_state = TlsState::Established;
                *self = Self::new(self.exports, CommonTerms { tls_state, has_zeroes, is_structured: false });
                return HagglingStep::StartTls;
            }
        }
        HagglingStep::NextOption
    }

    fn agreed(&self, export: Rc<Export>) -> NegotiatedExport {
        let selected = self.contexts.as_ref().filter(|(of, _)| Rc::ptr_eq(of, &export));
        let contexts = selected.map(|(_, contexts)| contexts.clone()).unwrap_or_default();
        let is_encrypted = self.terms.tls_state == TlsState::Established;
        let pass = export.gate.pass();
        NegotiatedExport { export, is_structured: self.terms.is_structured, contexts, is_encrypted, pass }
    }

    /// EXPORT_NAME has no error reply: the connection is closed instead.
    fn export_name(
        &self,
        data: &[u8],
        answer: &mut Vec<u8>,
        admit: impl FnOnce() -> Result<(), usize>,
    ) -> HagglingStep {
        let name = ByteReader(data).rest_as_string();
        let export = match name.map(|name| self.exports.place(name)) {
            Some(ExportPlace::Here(export)) => export,
            Some(ExportPlace::Elsewhere) => return HagglingStep::HandOver,
            Some(ExportPlace::Stopped) => return HagglingStep::Disconnect(STOPPED),
            Some(ExportPlace::Nowhere) | None => {
                return HagglingStep::Disconnect("EXPORT_NAME of an unknown export");
            }
        };
        if export.gate.is_withheld() {
            return HagglingStep::Disconnect(WITHHELD);
        }
        if let Err(count_max) = admit() {
            return HagglingStep::Refuse(count_max);
        }
        let (size, flags) = export.size_and_flags();
        answer.extend(size.to_be_bytes());
        answer.extend(flags.to_be_bytes());
        if self.terms.has_zeroes {
            answer.extend([0; 124]);
        }
        HagglingStep::Transmission(self.agreed(Rc::clone(export)))
    }

    fn list(&self, answers: &mut OptionReplies<'_>) {
        for (name, description) in self.exports.list() {
            let mut data = Vec::new();
            write_string(&mut data, name);
            data.extend(description.as_bytes());
            answers.put(reply::SERVER, &data);
        }
        answers.put(reply::ACK, &[]);
    }

    fn find(&self, name: &str, answers: &mut OptionReplies<'_>) -> Lookup<'e> {
        match self.exports.place(name) {
            ExportPlace::Nowhere => answers.error(reply::UNKNOWN, &format!("there is no export {name:?}")),
            ExportPlace::Elsewhere => return Lookup::Elsewhere,
            ExportPlace::Stopped => answers.error(reply::POLICY, STOPPED),
            ExportPlace::Here(export) if export.gate.is_withheld() => answers.error(reply::POLICY, WITHHELD),
            ExportPlace::Here(export) => return Lookup::Found(export),
        }
        Lookup::Refused
    }

    fn info(&self, data: &[u8], answers: &mut OptionReplies<'_>) -> Lookup<'e> {
        let Some(request) = InfoRequest::read(data) else {
            answers.error(reply::INVALID, "malformed option data");
            return Lookup::Refused;
        };
        let export = match self.find(&request.name, answers) {
            Lookup::Found(export) => export,
            not_here => return not_here,
        };
        let (size, flags) = export.size_and_flags();
        answers.put(reply::INFO, &InfoReply::Export(size, flags).write());
        answers.put(reply::INFO, &InfoReply::BlockSizes(export.block_sizes()).write());
        if request.wanted.contains(&info::NAME) {
            answers.put(reply::INFO, &InfoReply::Name(export.name.clone()).write());
        }
        if request.wanted.contains(&info::DESCRIPTION) && !export.description.is_empty() {
            answers.put(reply::INFO, &InfoReply::Description(export.description.clone()).write());
        }
        answers.put(reply::ACK, &[]);
        Lookup::Found(export)
    }

    fn contexts(&mut self, data: &[u8], answers: &mut OptionReplies<'_>) -> HagglingStep {
        let sets = answers.asked == option::SET_META_CONTEXT;
        if sets {
            self.contexts = None;
        }
        if !self.terms.is_structured {
            answers.error(reply::INVALID, "negotiate structured replies first");
            return HagglingStep::NextOption;
        }
        let Some(request) = ContextRequest::read(data) else {
            answers.error(reply::INVALID, "malformed option data");
            return HagglingStep::NextOption;
        };
        let export = match self.find(&request.name, answers) {
            Lookup::Found(export) => export,
            Lookup::Elsewhere => return HagglingStep::HandOver,
            Lookup::Refused => return HagglingStep::NextOption,
        };
        let ids_and_names: Vec<(u32, String)> = if sets {
            let Some((contexts, names)) = selected(export, &request) else {
                let why = format!("more than {CONTEXTS_MAX} metadata contexts, the limit of this server");
                answers.error(reply::TOO_BIG, &why);
                return HagglingStep::NextOption;
            };
            self.contexts = Some((Rc::clone(export), contexts));
            (1..).zip(names).collect()
        } else {
            listed(export, &request).into_iter().map(|name| (0, name)).collect()
        };
        for (id, name) in ids_and_names {
            answers.put(reply::META_CONTEXT, &[&id.to_be_bytes()[..], name.as_bytes()].concat());
        }
        answers.put(reply::ACK, &[]);
        HagglingStep::NextOption
    }

    /// Answers an option with too much data.
    pub fn refuse_too_big(&mut self, asked: u32, answer: &mut Vec<u8>) {
        if asked == option::SET_META_CONTEXT {
            self.contexts = None;
        }
        OptionReplies { asked, into: answer }.put(reply::TOO_BIG, &[]);
    }
}

/// Result of the search for an export that an option names.
enum Lookup<'e> {
    Found(&'e Rc<Export>),
    /// Another thread may have it; nothing was answered.
    Elsewhere,
    /// The error was answered.
    Refused,
}

/// Appends the replies to one option.
struct OptionReplies<'a> {
    asked: u32,
    into: &'a mut Vec<u8>,
}

impl OptionReplies<'_> {
    fn put(&mut self, reply: u32, data: &[u8]) {
        OptionReplyHead::write(self.into, self.asked, reply, data);
    }

    fn error(&mut self, error: u32, message: &str) {
        let length = message.floor_char_boundary(TEXT_BYTES_MAX);
        self.put(error, &message.as_bytes()[..length]);
    }
}
