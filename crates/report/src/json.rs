//! The report as JSON, for programs: every field of the document under stable names.
//!
//! ```text
//! { "format": "spindle-report", "version": 1, "document": { "title": …, "sections": […] } }
//! ```
//!
//! Absent numbers are `null`. Reading back gives the same document, bit for bit. The version rises
//! only when a reader of the old one would misunderstand; fields may be added without it.

use std::{error, fmt, io};

use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;

use crate::document::Document;

const FORMAT: &str = "spindle-report";

/// The version of the format written and read.
pub const VERSION: u32 = 1;

/// Why a text is not a report.
#[derive(Debug)]
pub enum ReadError {
    /// It is not JSON, or not a document inside the right envelope.
    Malformed(serde_json::Error),
    /// It is JSON, but its `format` is not that of a report.
    NotAReport,
    /// It is a report of a version this program does not know.
    UnknownVersion {
        /// The version found.
        found: u32,
    },
}

/// Writes the document: indented objects, arrays of numbers on one line.
pub fn render(document: &Document) -> String {
    let envelope = Written { format: FORMAT, version: VERSION, document };
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Indented::default());
    envelope.serialize(&mut serializer).expect("a document has string keys and memory takes every write");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON of strings is UTF-8")
}

/// Reads a document written by [`render`].
///
/// # Errors
/// If the text is not JSON, not a report, or a report of another version.
pub fn parse(text: &str) -> Result<Document, ReadError> {
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
    let read: Read = serde_json::from_str(text).map_err(ReadError::Malformed)?;
    Ok(read.document)
}

#[derive(Serialize)]
struct Written<'a> {
    format: &'a str,
    version: u32,
    document: &'a Document,
}

/// Read first: the document of another version need not be understood to say so.
#[derive(Deserialize)]
struct Envelope {
    format: String,
    version: u32,
}

#[derive(Deserialize)]
struct Read {
    document: Document,
}

/// Objects indented by their depth, arrays never broken between numbers: thousands of samples make
/// one line, not thousands.
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
