//! The report crate: a document model and three renderers.
//!
//! Other crates build a [`Document`] (sections of paragraphs, tables, charts, limits and logs). This crate
//! renders it as [`text`] for a terminal, [`json`] for programs, and [`html`] as one offline, printable file.
//! It depends on no other crate of the workspace, measures nothing and judges nothing: a verdict is data.
//!
//! Invariants of the model, on which every renderer relies:
//!
//! 1. A number that was not measured is absent, never NaN or infinite ([`Measurement`]).
//! 2. Every row of a [`Table`] has exactly one cell per column.
//! 3. The points of a [`TimeSeries`] are in time order, at finite times.
//! 4. The stations of a [`CurveChart`] ascend, and every line has one value for each.
//! 5. The buckets of a [`Histogram`] ascend, do not overlap and are not empty ranges.
//!
//! They also hold for documents parsed from JSON: each type validates itself.

mod axis;
mod block;
pub mod calendar;
mod cell;
mod chart;
mod curve;
mod document;
pub mod duration;
mod histogram;
pub mod html;
pub mod json;
mod markup;
mod measurement;
pub mod prose;
mod quantity;
mod refusal;
mod sampling;
pub mod settings;
mod svg;
mod table;
pub mod text;
mod unit;

pub use block::{Block, KeyValue, KeyValues, LimitCheck, LimitTable, LogBlock, LogLine, Paragraph, Relation};
pub use cell::{Cell, Mark};
pub use chart::{
    Axis, ChartEvent, Distribution, DistributionView, LimitLine, LineChart, TimePoint, TimeSeries,
};
pub use curve::{CurveChart, CurveError, CurveLine, Station};
pub use document::{Document, Finding, Meta, Section, Severity, Verdict, VerdictOutcome};
pub use histogram::{Bucket, Histogram, HistogramError};
pub use measurement::Measurement;
pub use refusal::{Refusal, RefusalCause};
pub use table::{Align, Column, RaggedRow, Table};
pub use unit::Unit;
