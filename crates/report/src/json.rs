//! The report as JSON: every field of the document under a stable name.
//!
//! ```text
//! { "format": "spindle-report", "version": 1, "document": { "title": …, "sections": […] } }
//! ```
//!
//! Absent numbers are `null`. Parsing returns an identical document. The version rises only if a reader of the old one
//! would misunderstand the new; fields may be added without it.

use std::{error, fmt, io};

use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;

use crate::document::{Document, Meta, Verdict};

const FORMAT: &str = "spindle-report";

/// The version of the format written and read.
pub const VERSION: u32 = 1;

/// A text that is no report.
#[derive(Debug)]
pub enum ReadError {
    /// Not JSON, or not a document in the expected envelope.
    Malformed(serde_json::Error),
    NotAReport,
    /// The report has an unknown version.
    UnknownVersion {
        found: u32,
    },
}

/// Renders the document: indented objects, arrays of numbers on one line.
pub fn render(document: &Document) -> String {
    let envelope = ReportFile { format: FORMAT, version: VERSION, document };
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Indented::default());
    envelope.serialize(&mut serializer).expect("a document has string keys and memory takes every write");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON of strings is UTF-8")
}

/// Parses a document rendered by [`render`].
///
/// # Errors
/// If the text is not JSON, no report, or a report of another version.
pub fn parse(text: &str) -> Result<Document, ReadError> {
    let read: Read = read(text)?;
    Ok(read.document)
}

/// Reads a part of the envelope, once it is known to be one.
fn read<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, ReadError> {
    let envelope: Envelope = serde_json::from_str(text).map_err(|source| match source.classify() {
        serde_json::error::Category::Data => ReadError::NotAReport,
        _ => ReadError::Malformed(source),
    })?;
    if envelope.format != FORMAT {
        return Err(ReadError::NotAReport);
    }
    if envelope.version != VERSION {
        return Err(ReadError::UnknownVersion { found: envelope.version });
    }
    serde_json::from_str(text).map_err(ReadError::Malformed)
}

/// The facts of a report that lists show.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DocumentSummary {
    pub title: String,
    pub subtitle: String,
    pub meta: Meta,
    /// None if the report judges nothing.
    pub verdict: Option<Verdict>,
}

/// Parses the facts alone; the rest of the document may be damaged.
///
/// # Errors
/// As [`parse`].
pub fn parse_summary(text: &str) -> Result<DocumentSummary, ReadError> {
    let read: SummaryRead = read(text)?;
    Ok(read.document)
}

#[derive(Serialize)]
struct ReportFile<'a> {
    format: &'a str,
    version: u32,
    document: &'a Document,
}

/// Parsed first, so that the version can be reported even if the document is unreadable.
#[derive(Deserialize)]
struct Envelope {
    format: String,
    version: u32,
}

#[derive(Deserialize)]
struct Read {
    document: Document,
}

#[derive(Deserialize)]
struct SummaryRead {
    document: DocumentSummary,
}

/// Formatter that indents objects and keeps arrays of numbers on one line, since there are thousands of
/// samples.
#[derive(Default)]
struct Indented {
    depth: usize,
    holds_values: bool,
}

impl Indented {
    fn new_line<W: ?Sized + io::Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b" "))
    }
}

impl Formatter for Indented {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.holds_values = false;
        writer.write_all(b"{")
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        self.new_line(writer)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.holds_values = true;
        Ok(())
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.holds_values {
            self.new_line(writer)?;
        }
        self.holds_values = true;
        writer.write_all(b"}")
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(source) => write!(f, "not a readable report: {source}"),
            Self::NotAReport => write!(f, "JSON, but not a Spindle report"),
            Self::UnknownVersion { found } => {
                write!(f, "a report of version {found}; this program reads version {VERSION}")
            }
        }
    }
}

impl error::Error for ReadError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Malformed(source) => Some(source),
            Self::NotAReport | Self::UnknownVersion { .. } => None,
        }
    }
}
