//! What a client asks for before it begins, and what it is answered: a state machine without I/O.
//!
//! Invariants:
//!
//! 1. Everything asked for is answered once it ends in an error or in ACK; but for EXPORT_NAME and ABORT.
//! 2. What was agreed on before TLS is forgotten.
//! 3. Where TLS is required nothing is said of exports before it.
//! 4. Contexts that were agreed on belong to the export they were asked for: another one does away with them.

use crate::{
    export::{Export, Exports},
    wire::{
        TEXT_BYTES_MAX, Taking,
        handshake::{ContextRequest, Fact, InfoRequest, ReplyHead, info, option, reply},
        put_text,
    },
};
use std::rc::Rc;

/// The one metadata context there is.
pub const ALLOCATION: &str = "base:allocation";
/// Its number.
pub const ALLOCATION_ID: u32 = 1;

/// What a client and the server have agreed on.
#[derive(Clone)]
pub struct Agreed {
    /// What is served.
    pub export: Rc<Export>,
    /// Replies are structured.
    pub is_structured: bool,
    /// Block status may be asked for.
    pub has_allocation: bool,
    /// All but the first words went over TLS.
    pub is_encrypted: bool,
}

/// How it goes on.
pub enum Next {
    /// With what is asked for next.
    Ask,
    /// With TLS, and what is asked for then.
    Encrypt,
    /// With requests.
    Begin(Agreed),
    /// Not at all: there are so many clients already, as many as there may be.
    Refuse(usize),
    /// Not at all.
    End,
}

/// Whether others can listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    /// They can, and there is no TLS.
    Plain,
    /// They can, unless the client asks for TLS; it may do without.
    MayEncrypt,
    /// They can, so that the client must ask for TLS.
    MustEncrypt,
    /// They cannot: it is TLS.
    Encrypted,
}

/// See the module's documentation.
pub struct Haggling<'e> {
    exports: &'e Exports,
    privacy: Privacy,
    has_zeroes: bool,
    is_structured: bool,
    /// The export whose allocation was asked for.
    allocation_of: Option<String>,
}

impl<'e> Haggling<'e> {
    /// A client that was greeted; behind the facts of an export it wants 124 zeroes, or not.
    pub fn new(exports: &'e Exports, has_zeroes: bool, privacy: Privacy) -> Self {
        Self { exports, privacy, has_zeroes, is_structured: false, allocation_of: None }
    }

    /// Answers what is asked for. `admit` finds a place for a client that has chosen an export, or says how many there are.
    pub fn take(
        &mut self,
        asked: u32,
        data: &[u8],
        answer: &mut Vec<u8>,
        admit: impl FnOnce() -> Result<(), usize>,
    ) -> Next {
        let mut answers = Answers { asked, into: answer };
        match asked {
            // It has no answer that says no.
            option::EXPORT_NAME if self.privacy == Privacy::MustEncrypt => return Next::End,
            option::EXPORT_NAME => return self.export_name(data, answers.into, admit),
            option::ABORT => {
                answers.put(reply::ACK, &[]);
                return Next::End;
            }
            option::STARTTLS => return self.start_tls(data, &mut answers),
            _ if self.privacy == Privacy::MustEncrypt => {
                answers.error(reply::TLS_REQUIRED, "only over TLS: STARTTLS comes first");
            }
            option::LIST if data.is_empty() => self.list(&mut answers),
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.is_structured = true;
                answers.put(reply::ACK, &[]);
            }
            option::LIST | option::STRUCTURED_REPLY => answers.error(reply::INVALID, "it has no data"),
            option::INFO => _ = self.info(data, &mut answers),
            option::GO => {
                let mut told = Vec::new();
                let Some(export) = self.info(data, &mut Answers { asked, into: &mut told }) else {
                    answers.into.extend(told);
                    return Next::Ask;
                };
                if let Err(count_max) = admit() {
                    let why = format!("{count_max} clients are connected, as many as this server takes");
                    answers.error(reply::POLICY, &why);
                    return Next::Refuse(count_max);
                }
                answers.into.extend(told);
                return Next::Begin(self.agreed(export));
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.contexts(data, &mut answers),
            _ => answers.error(reply::UNSUPPORTED, "this server does not know it"),
        }
        Next::Ask
    }

    fn start_tls(&mut self, data: &[u8], answers: &mut Answers<'_>) -> Next {
        match self.privacy {
            Privacy::Plain => answers.error(reply::POLICY, "this server has no TLS"),
            Privacy::Encrypted => answers.error(reply::INVALID, "it is TLS already"),
            _ if !data.is_empty() => answers.error(reply::INVALID, "it has no data"),
            Privacy::MayEncrypt | Privacy::MustEncrypt => {
                answers.put(reply::ACK, &[]);
                *self = Self::new(self.exports, self.has_zeroes, Privacy::Encrypted);
                return Next::Encrypt;
            }
        }
        Next::Ask
    }

    fn agreed(&self, export: Rc<Export>) -> Agreed {
        let has_allocation = self
            .allocation_of
            .as_ref()
            .is_some_and(|name| self.exports.find(name).is_some_and(|known| Rc::ptr_eq(known, &export)));
        let is_encrypted = self.privacy == Privacy::Encrypted;
        Agreed { export, is_structured: self.is_structured, has_allocation, is_encrypted }
    }

    /// The old way: there is no answer that says no.
    fn export_name(
        &self,
        data: &[u8],
        answer: &mut Vec<u8>,
        admit: impl FnOnce() -> Result<(), usize>,
    ) -> Next {
        let name = Taking(data).rest_as_text();
        let Some(export) = name.and_then(|name| self.exports.find(name)) else { return Next::End };
        if let Err(count_max) = admit() {
            return Next::Refuse(count_max);
        }
        let (size, flags) = export.facts();
        answer.extend(size.to_be_bytes());
        answer.extend(flags.to_be_bytes());
        if self.has_zeroes {
            answer.extend([0; 124]);
        }
        Next::Begin(self.agreed(Rc::clone(export)))
    }

    fn list(&self, answers: &mut Answers<'_>) {
        for export in self.exports.all() {
            let mut data = Vec::new();
            put_text(&mut data, &export.name);
            data.extend(export.description.as_bytes());
            answers.put(reply::SERVER, &data);
        }
        answers.put(reply::ACK, &[]);
    }

    fn find(&self, name: &str, answers: &mut Answers<'_>) -> Option<&'e Rc<Export>> {
        let export = self.exports.find(name);
        if export.is_none() {
            answers.error(reply::UNKNOWN, &format!("there is no export {name:?}"));
        }
        export
    }

    fn info(&self, data: &[u8], answers: &mut Answers<'_>) -> Option<Rc<Export>> {
        let Some(request) = InfoRequest::read(data) else {
            answers.error(reply::INVALID, "its data are not well formed");
            return None;
        };
        let export = self.find(&request.name, answers)?;
        let (size, flags) = export.facts();
        answers.put(reply::INFO, &Fact::Export(size, flags).write());
        answers.put(reply::INFO, &Fact::BlockSizes(export.block_sizes()).write());
        if request.wanted.contains(&info::NAME) {
            answers.put(reply::INFO, &Fact::Name(export.name.clone()).write());
        }
        if request.wanted.contains(&info::DESCRIPTION) && !export.description.is_empty() {
            answers.put(reply::INFO, &Fact::Description(export.description.clone()).write());
        }
        answers.put(reply::ACK, &[]);
        Some(Rc::clone(export))
    }

    fn contexts(&mut self, data: &[u8], answers: &mut Answers<'_>) {
        let sets = answers.asked == option::SET_META_CONTEXT;
        if sets {
            self.allocation_of = None;
        }
        if !self.is_structured {
            return answers.error(reply::INVALID, "structured replies come first");
        }
        let Some(request) = ContextRequest::read(data) else {
            return answers.error(reply::INVALID, "its data are not well formed");
        };
        if self.find(&request.name, answers).is_none() {
            return;
        }
        let is_asked_for = |query: &String| query == ALLOCATION || (!sets && query == "base:");
        let lists_all = !sets && request.queries.is_empty();
        if lists_all || request.queries.iter().any(is_asked_for) {
            let id = if sets { ALLOCATION_ID } else { 0 };
            let context = [&id.to_be_bytes()[..], ALLOCATION.as_bytes()].concat();
            answers.put(reply::META_CONTEXT, &context);
            if sets {
                self.allocation_of = Some(request.name);
            }
        }
        answers.put(reply::ACK, &[]);
    }
}

/// Answers to one thing.
struct Answers<'a> {
    asked: u32,
    into: &'a mut Vec<u8>,
}

impl Answers<'_> {
    fn put(&mut self, reply: u32, data: &[u8]) {
        ReplyHead::write(self.into, self.asked, reply, data);
    }

    fn error(&mut self, error: u32, story: &str) {
        let length = story.floor_char_boundary(TEXT_BYTES_MAX);
        self.put(error, &story.as_bytes()[..length]);
    }
}
